"""A hostile transcript: whatever a model, a tool or a person writes, nothing runs, is asked for, or hides."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.page_agents import EVIL, HIDDEN
from tests.browser.served import PATIENCE_MS, Server
from tests.browser.sheets import Sheet

HIDING = re.compile("[\x1b\x07\u202e\u200b]")


@pytest.fixture
def watched(context: BrowserContext, server: Server) -> Iterator[Sheet]:
    """A page of which every request is written down, and every attempt to run something."""
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("page", lambda page: asked.append(f"a window: {page.url}") if len(context.pages) > 1 else None)
    page = context.new_page()
    page.add_init_script(
        "for (const name of ['alert', 'confirm', 'prompt', 'open']) window[name] = () => { window.pwned = name }"
    )
    page.on("dialog", lambda dialog: asked.append(f"a dialog: {dialog.message}"))
    page.set_default_timeout(PATIENCE_MS)
    yield Sheet(page, server)
    assert page.evaluate("window.pwned") is None
    assert [url for url in asked if not url.startswith(server.url)] == []
    assert "x" not in {url.rsplit("/", 1)[-1] for url in asked}  # <img src=x>


def nothing_hides(page: Page) -> None:
    """No text node of the page, in any shadow root, has a character that acts or hides; and no element came of text."""
    texts, elements = page.evaluate(
        """() => { const texts = [], elements = []
             const walk = (root) => { for (const node of root.childNodes) {
               if (node.nodeType === 3) texts.push(node.data)
               if (node.nodeType !== 1) continue
               elements.push([node.localName, node.getAttributeNames().filter((name) => name.startsWith('on')).join()])
               for (const name of node.getAttributeNames()) texts.push(node.getAttribute(name))
               if (node.shadowRoot) walk(node.shadowRoot)
               walk(node) } }
             walk(document.body); return [texts, elements] }"""
    )
    assert [text for text in texts if HIDING.search(text)] == []
    assert {name for name, _ in elements} & {"script", "iframe", "object", "embed", "base", "style"} == set()
    assert {handlers for _, handlers in elements} == {""}
    links = page.evaluate(
        """() => { const links = []
             const walk = (root) => { for (const node of root.querySelectorAll('*')) {
               if (node.href && node.localName === 'a') links.push(String(node.href))
               if (node.shadowRoot) walk(node.shadowRoot) } }
             walk(document); return links }"""
    )
    assert [link for link in links if not link.startswith(("http:", "https:"))] == []


def test_a_hostile_transcript_runs_nothing_and_asks_for_nothing(watched: Sheet, server: Server) -> None:
    """D16: in goal, steps, live text, Markdown, arguments, results, errors, effects, instructions and receipts."""
    page = watched.page
    goal = f"{EVIL}{HIDDEN}"
    run = server.start("hostile", goal)
    server.until(run, lambda view: view.get("waiting"))
    watched.open(run)

    expect(watched.title).to_contain_text("<script>window.pwned=1</script>")
    expect(watched.steps).to_contain_text("<img src=x onerror=")
    expect(watched.text).to_contain_text("<script>window.pwned=1</script>")
    expect(watched.text.get_by_role("link", name="good")).to_have_attribute("href", "https://example.com/a")
    expect(watched.text.locator("a", has_text="bad")).to_have_count(0)
    expect(watched.text.get_by_role("cell", name="1")).to_be_visible()
    expect(watched.changes).to_contain_text("leave_<b>mark</b>")
    expect(watched.needs).to_contain_text("\\x1b[31mred")
    for name in ("look_up", "leave_<b>mark</b>", "break_down", "wire", "scripted"):
        line = watched.call(name)
        line.locator("summary").first.click()
        expect(line.locator(".opened")).not_to_contain_text("Looking it up")
    expect(watched.calls).to_contain_text("javascript:window.pwned=12")
    for folded in page.locator("details.folded summary").all():
        folded.click()
    server.post(f"/api/runs/{run}/ask", question=goal, wait=0)
    server.post(f"/api/runs/{run}/cancel", reason=goal)
    server.post(f"/api/runs/{run}/reason", reason="other", note=goal)
    expect(watched.ended).to_contain_text("Stopped")
    watched.ended.get_by_text("Details").click()
    nothing_hides(page)

    page.goto(server.url)
    expect(page.locator(f'li[data-run="{run}"]')).to_contain_text("<script>window.pwned=1")
    nothing_hides(page)
    page.goto(f"{server.url}/?thread={EVIL}")
    nothing_hides(page)


def test_a_script_that_comes_in_pieces_stays_text_and_an_error_too(watched: Sheet, server: Server) -> None:
    run = server.start("hostile_stream")
    watched.open(run)

    expect(watched.text.locator(".streamed")).to_contain_text("<script>window.pwned=10</script>")
    expect(watched.text).to_contain_text("\\x1b[31mred")
    server.open_gate(run)
    watched.shows("Failed")
    expect(watched.ended).to_contain_text("<script>window.pwned=1</script>")
    watched.opened("stream <script>")
    nothing_hides(watched.page)
    expect(watched.page).to_have_title(re.compile("^Failed"))


def test_a_hostile_person_is_shown_as_text_too(watched: Sheet, server: Server) -> None:
    run = server.talking()
    watched.open(run)

    server.post(f"/api/runs/{run}/redirect", instruction=EVIL + HIDDEN)
    expect(watched.told.locator(".diff")).to_contain_text("window.pwned")
    server.post(f"/api/runs/{run}/cancel", reason=EVIL + HIDDEN)

    expect(watched.ended).to_contain_text("Stopped")
    watched.ended.get_by_text("Details").click()
    nothing_hides(watched.page)


RAW = (
    '<p onclick="window.pwned=1" style="color:red">text <a href="javascript:window.pwned=2">bad</a> '
    '<a href="//evil.test/">half</a> <a href="data:text/html,x">data</a> <a href="https://example.com/b">good</a></p>'
    '<script>window.pwned=3</script><img src="https://evil.test/stolen" onerror="window.pwned=4">'
    '<iframe src="/"></iframe>'
    '<form action="https://evil.test/"><input name="q"></form><svg><a href="javascript:window.pwned=5">svg</a></svg>'
    '<custom-element onmouseover="window.pwned=6">kept as text</custom-element>'
    '<table><tr><td align="right">1</td></tr></table>'
    "<math><mtext></p><style><img src=x onerror=window.pwned=7></style></math>"
)


def test_the_walk_over_rendered_markdown_trusts_no_server(watched: Sheet, server: Server) -> None:
    page = watched.page
    page.goto(server.url)

    html = page.evaluate(
        """async ([raw, module]) => { const { markdown } = await import(module)
             const place = document.createElement('section')
             place.append(markdown(raw)); document.body.append(place)
             place.querySelectorAll('*').forEach((one) => one.dispatchEvent(new MouseEvent('mouseover')))
             place.querySelector('p').click()
             return place.innerHTML }""",
        [RAW, server.script("lib/markdown.js")],
    )

    assert re.findall(r"<(\w+)", html).count("a") == 4
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.com/b"]
    assert set(re.findall(r"<(\w+)", html)) <= {"p", "a", "div", "table", "tbody", "tr", "td"}
    assert "kept as text" in html
    assert "pwned" not in html
    nothing_hides(page)
