"""A run with very many events: the page stays quick while they come, and short when they are there."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.served import Server
from tests.browser.sheets import Sheet
from tests.support.patience import within

CALLS = 5_000
"""Two events each."""
FRAME_MS = 250
"""What a frame may take on a busy machine with two cores; it is a few milliseconds on a free one."""

MEASURE = """() => {
  const seen = { frames: [], tasks: [] }
  new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ type: 'longtask' })
  let last = performance.now()
  const frame = (now) => { seen.frames.push(now - last); last = now; requestAnimationFrame(frame) }
  requestAnimationFrame(frame)
  window.seen = seen
}"""


def test_ten_thousand_events_do_not_slow_the_page_down(page: Page, server: Server) -> None:
    sheet = Sheet(page, server)
    run = server.start("busy", f"{CALLS} calls")
    sheet.open(run)
    page.evaluate(MEASURE)

    expect(sheet.status).to_have_text("Completed")

    seen = page.evaluate("window.seen")
    assert server.view(run)["seq"] >= 2 * CALLS
    frames = sorted(seen["frames"])
    median, p99 = frames[len(frames) // 2], frames[int(len(frames) * 0.99)]
    print(f"{len(frames)} frames, median {median:.0f} ms, p99 {p99:.0f} ms, longest {frames[-1]:.0f} ms")
    print(f"long tasks: {sorted(map(round, seen['tasks']))[-10:]}")
    assert frames[int(len(frames) * 0.95)] < within(FRAME_MS)
    assert len(frames) > 20

    expect(sheet.calls).to_contain_text("5,000 calls")
    expect(sheet.calls.locator("li[data-call]")).to_have_count(30)
    expect(sheet.timeline.locator(".merged")).not_to_have_count(0)
    assert page.evaluate("document.querySelector('checkrein-run').shadowRoot.querySelectorAll('*').length") < 4_000

    page.get_by_role("button", name="Show 200 earlier calls (4,970 more)").click()
    expect(sheet.calls.locator("li[data-call]")).to_have_count(230)
    page.get_by_role("button", name="Show 200 earlier steps").click()
    expect(sheet.steps.locator("li.task")).to_have_count(260)

    page.reload()
    expect(sheet.calls).to_contain_text("5,000 calls")
    expect(sheet.steps).to_contain_text("5,000 of 5,000 done")
