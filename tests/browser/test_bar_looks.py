"""What the bar looks like: told apart by shape and word, readable for everybody, whole on a phone."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.bars import Bar
from tests.browser.conftest import log_in
from tests.browser.served import Server, until

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "device_scale_factor": 2}
LIGHT = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"}
DARK = {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"}
ZOOMED = {"viewport": {"width": 640, "height": 400}, "device_scale_factor": 2}  # 1280 × 800 at 200 %

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def open_bar(browser: Browser, tidy_server: Server):
    """Open a bar in a browser with these properties."""
    contexts = []

    def open_bar(run: str, options: dict[str, Any], **attributes: str) -> Bar:
        context = browser.new_context(**options)
        contexts.append(context)
        log_in(context, tidy_server)
        bar = Bar(context.new_page(), tidy_server)
        bar.open(run, **attributes)
        return bar

    yield open_bar
    for context in contexts:
        context.close()


def _at_work(server: Server) -> str:
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    return run


@pytest.mark.parametrize("options", [LIGHT, DARK, PHONE], ids=["light", "dark", "phone"])
def test_axe_finds_nothing_in_any_state(open_bar, server: Server, options: dict[str, Any]):
    run = _at_work(server)
    bar = open_bar(run, options)
    bar.shows("Running")
    assert bar.faults() == []

    bar.button("Redirect").click()
    bar.field.fill("Score churn risk, Q3 only")
    assert bar.faults() == []

    bar.button("Pause").click()
    expect(bar.button("Don't wait: abort it")).to_be_visible()
    assert bar.faults() == []

    bar.button("Don't wait: abort it").click()
    bar.shows("Paused")
    assert bar.faults() == []

    bar.field.press("Escape")
    bar.button("Cancel").click()
    bar.page.get_by_text("Details").click()
    assert bar.faults() == []


def test_every_state_has_a_shape_of_its_own_and_a_word(bar: Bar, server: Server):
    """D24: nothing is told by colour alone."""
    bar.open(_at_work(server))

    looks = bar.page.evaluate(
        """async () => {
          const { shape } = await import("/ui/lib/shapes.js");
          const { default: words } = await import("/ui/wording.js");
          const all = { ...words.shown, ...words.statuses };
          return Object.entries(all).map(([name, word]) => [name, word, shape(name).innerHTML]);
        }"""
    )

    same = {"completed": "done"}
    shapes = {name: drawn for name, _, drawn in looks}
    for name, drawn in shapes.items():
        twins = {other for other, look in shapes.items() if look == drawn} - {name}
        assert twins <= {same.get(name), *(one for one, other in same.items() if other == name)}, name
    assert len(looks) == 15
    assert all(word for _, word, _ in looks)


def test_steps_turns_and_tokens_are_in_view_each_against_its_cap(bar: Bar, server: Server):
    """D19, D25."""
    bar.open(_at_work(server))

    expect(bar.region).to_contain_text("step 3 of 4")
    expect(bar.region).to_contain_text("turn 2 of 20")
    expect(bar.region).to_contain_text("of 50k tokens")
    expect(bar.region).not_to_contain_text("near its cap")


def test_a_runaway_is_seen_coming(bar: Bar, server: Server):
    """D25: a cap that is near says so, in words and by its shape, and aloud."""
    run = server.start("spender")
    server.until_calling(run, "score_churn")
    server.until(run, lambda view: view["usage"]["turns"] == 4)
    bar.open(run)

    near = bar.page.locator(".cap[data-near]")
    expect(near).to_have_text("turn 4 of 5, near its cap")
    expect(near.locator(".shape-near")).to_be_visible()
    expect(bar.spoken).to_contain_text("Turns near their cap.")


def test_what_waits_for_a_person_says_so(bar: Bar, server: Server):
    run = server.start("asker")
    server.until(run, lambda view: view.get("waiting"))

    bar.open(run)

    bar.shows("Waiting for you")
    expect(bar.page.get_by_text("May it use send_email?").last).to_be_visible()
    expect(bar.status.locator(".shape-needs_you")).to_be_visible()


def _problems(bar: Bar) -> list[str]:
    """Where text runs over an edge, buttons overlap, or something is too small to hit."""
    found: list[str] = bar.page.evaluate(
        """() => {
          const root = document.querySelector("checkrein-bar").shadowRoot;
          const problems = [];
          const seen = (element) => element.checkVisibility();
          const buttons = [...root.querySelectorAll("button, summary, .whens label")].filter(seen);
          for (const button of buttons) {
            const box = button.getBoundingClientRect();
            if (box.width < 44 || box.height < 43.5) problems.push(`small: ${button.textContent}`);
            if (box.left < 0 || box.right > innerWidth) problems.push(`out of the page: ${button.textContent}`);
            for (const part of button.querySelectorAll("b, .consequence")) {
              const text = part.getBoundingClientRect();
              const isOver = text.right > box.right + 1 || text.bottom > box.bottom + 1;
              if (isOver) problems.push(`over the edge: ${part.textContent}`);
            }
          }
          const boxes = [...root.querySelectorAll(".status, .time, .facts > .mono, .cap, .key")].filter(seen)
            .map((element) => [element.textContent, element.getBoundingClientRect()]);
          for (const [n, [one, a]] of boxes.entries()) {
            for (const [other, b] of boxes.slice(n + 1)) {
              if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1) {
                problems.push(`overlap: ${one} and ${other}`);
              }
            }
          }
          return problems;
        }"""
    )
    return found


@pytest.mark.parametrize("options", [PHONE, ZOOMED, LIGHT], ids=["phone", "200 %", "desktop"])
def test_everything_is_in_view_large_enough_and_nothing_overlaps(open_bar, server: Server, options: dict[str, Any]):
    """D11: the stop control is never out of view."""
    bar = open_bar(_at_work(server), options)
    bar.shows("Running")

    for composing in (False, True):
        if composing:
            bar.button("Redirect").click()
        assert _problems(bar) == []
        assert bar.page.evaluate(OVERFLOW) == 0
        for slot in ("hold", "redirect", "cancel"):
            expect(bar.key(slot)).to_be_in_viewport(ratio=0.99)
    bar.button("Cancel").click()
    bar.shows("Cancelled")
    assert _problems(bar) == []
    assert bar.page.evaluate(OVERFLOW) == 0


def _height(bar: Bar) -> int:
    return int(bar.region.evaluate("element => element.offsetHeight"))


def test_on_a_phone_most_of_the_screen_is_the_runs(open_bar, server: Server):
    """D11: the controls are in view, and so is what they control."""
    bar = open_bar(_at_work(server), PHONE)
    bar.shows("Running")
    expect(bar.consequence("cancel")).to_contain_text("takes back create_draft")
    assert _height(bar) <= 0.36 * 640

    bar.button("Pause").click()
    bar.button("Don't wait: abort it").click()
    bar.shows("Paused")

    expect(bar.button("Resume with an instruction")).to_be_visible()
    assert _height(bar) <= 0.45 * 640
    assert _problems(bar) == []


def test_the_bar_does_not_grow_and_shrink_with_its_words(bar: Bar, server: Server):
    bar.open(_at_work(server))
    bar.shows("Running")
    before = _height(bar)

    for words in ("x", "stops now · takes back the lock on the revenue table and the e-mail draft"):
        _say(bar, words)
        assert _height(bar) == before


def _say(bar: Bar, words: str) -> None:
    bar.page.evaluate(
        "text => { document.querySelector('checkrein-bar').live.view.controls.cancel.consequence = text }", words
    )
    expect(bar.consequence("cancel")).to_have_text(words)


@pytest.mark.parametrize("options", [PHONE, ZOOMED], ids=["phone", "200 %"])
def test_words_that_are_cut_off_can_be_read_in_full(open_bar, server: Server, options: dict[str, Any]):
    """D18: each control names its consequence, however long that is and however little room there is."""
    bar = open_bar(_at_work(server), options)
    bar.shows("Running")
    bar.page.evaluate(
        """() => { const { controls } = document.querySelector('checkrein-bar').live.view
             for (const one of Object.values(controls)) one.consequence = 'stops now' }"""
    )
    expect(bar.button("In full")).to_be_hidden()
    is_cut = "element => element.scrollHeight > element.clientHeight + 1"

    _say(bar, "undoes " + ", ".join(f"the draft to customer {n} of the long list" for n in range(6)))

    expect(bar.button("In full")).to_be_visible()
    assert bar.consequence("cancel").evaluate(is_cut)
    assert _problems(bar) == []
    bar.button("In full").click()
    assert not bar.consequence("cancel").evaluate(is_cut)
    assert _problems(bar) == []
    bar.button("In short").click()
    assert bar.consequence("cancel").evaluate(is_cut)


def test_long_words_from_an_agent_wrap(open_bar, server: Server):
    bar = open_bar(_at_work(server), PHONE)
    bar.shows("Running")

    long = "undoes 7 open effects (" + ", ".join(f"create_a_very_long_named_draft_{n}" for n in range(3)) + ")"
    bar.page.evaluate(
        "text => { document.querySelector('checkrein-bar').live.view.controls.cancel.consequence = text }", long
    )
    expect(bar.consequence("cancel")).to_have_text(long)

    assert _problems(bar) == []
    assert bar.page.evaluate(OVERFLOW) == 0
    expect(bar.key("hold")).to_be_in_viewport(ratio=0.99)


def test_on_a_phone_the_bar_stands_above_the_keyboard(open_bar, browser: Browser, server: Server):
    bar = open_bar(_at_work(server), PHONE)
    bar.shows("Running")
    bar.button("Redirect").click()

    bar.page.evaluate(  # a keyboard of 280 pixels, as a phone tells of it
        """() => {
          Object.defineProperty(visualViewport, "height", { get: () => 360 });
          visualViewport.dispatchEvent(new Event("resize"));
        }"""
    )

    def bottom() -> float:
        return float(bar.region.evaluate("element => element.getBoundingClientRect().bottom"))

    until(lambda: abs(bottom() - 360) < 1, "the bar has moved")
    for slot in ("hold", "redirect", "cancel"):
        box = bar.key(slot).bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 360
    top = bar.region.evaluate("element => element.getBoundingClientRect().top")
    assert top >= 0
    box = bar.button("Redirect now").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= 360


def test_nothing_of_the_page_is_hidden_behind_the_bar(bar: Bar, server: Server):
    bar.open(_at_work(server))
    bar.shows("Running")
    bar.page.evaluate(
        """() => {
          const end = Object.assign(document.createElement("p"), { id: "end", textContent: "end" });
          document.querySelector("main").append("text ".repeat(9000), end);
        }"""
    )

    bar.page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")

    end, top = (bar.page.locator(one).bounding_box() for one in ("#end", "checkrein-bar .bar"))
    assert end is not None
    assert top is not None
    assert end["y"] + end["height"] <= top["y"]


def test_an_inline_bar_stands_where_it_is_put(bar: Bar, server: Server):
    bar.open(_at_work(server), inline="")
    bar.shows("Running")

    place, before = (bar.page.locator(one).bounding_box() for one in ("checkrein-bar .bar", "main"))

    assert place is not None
    assert before is not None
    assert place["y"] < before["y"] + before["height"] + 60
    expect(bar.region).to_have_css("position", "static")
    assert _problems(bar) == []


def test_light_and_dark_follow_the_system_and_an_attribute_overrules_it(bar: Bar, server: Server):
    bar.open(_at_work(server))

    def ground(system: Literal["light", "dark"], theme: str = "") -> str:
        bar.page.emulate_media(color_scheme=system)
        bar.host.evaluate("(bar, theme) => bar.setAttribute('theme', theme)", theme)
        return str(bar.region.evaluate("element => getComputedStyle(element).backgroundColor"))

    light, dark = ground("light"), ground("dark")
    assert light != dark
    assert ground("light", "dark") == dark
    assert ground("dark", "light") == light


def test_less_motion_is_no_motion(open_bar, server: Server):
    bar = open_bar(_at_work(server), {**LIGHT, "reduced_motion": "reduce"})
    bar.shows("Running")

    moving = bar.page.evaluate("document.querySelector('checkrein-bar').shadowRoot.getAnimations().length")

    assert moving == 0
    expect(bar.status.locator(".shape-running")).to_be_visible()


def test_with_forced_colours_the_buttons_keep_their_edges(open_bar, server: Server):
    bar = open_bar(_at_work(server), {**LIGHT, "forced_colors": "active"})
    bar.shows("Running")

    for slot in ("hold", "redirect", "cancel"):
        width, style = bar.key(slot).evaluate(
            "e => [getComputedStyle(e).borderTopWidth, getComputedStyle(e).borderTopStyle]"
        )
        assert float(width.removesuffix("px")) >= 1
        assert style == "solid"
