"""What a model writes is shown as Markdown, and can do nothing."""

from __future__ import annotations

import asyncio
import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.server import markdown
from checkrein.server.markdown import MOST_CHARS, render

TAGS = {
    "p", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "hr",
    "br", "a", "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip
ATTRIBUTES = {"a": {"href", "rel", "title"}, "ol": {"start"}, "code": {"class"}, "th": {"style"}, "td": {"style"}}


class Looked(HTMLParser):
    """Every tag and attribute that a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.wrong: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in TAGS:
            self.wrong.append(tag)
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, set()):
                self.wrong.append(f"{tag} {name}")
            if name == "href":
                self.links.append(value or "")
                if not re.match(r"(https?://|mailto:)", value or ""):
                    self.wrong.append(f"href {value}")
        if tag == "a" and ("rel", "noopener noreferrer nofollow") not in attrs:
            self.wrong.append("a without rel")


def test_text_is_rendered() -> None:
    html = render(
        "# Memo\n\n- **one**\n- `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[site](https://example.com/x?a=1&b=2)"
    )

    looked = Looked(html)
    assert {"h1", "strong", "code", "table", "td", "a"} <= set(looked.tags)
    assert looked.links == ["https://example.com/x?a=1&b=2"]
    assert looked.wrong == []


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<svg/onload=alert(1)>",
        "<a href='javascript:alert(1)'>x</a>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](java\tscript:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](vbscript:x)",
        "[x](file:///etc/passwd)",
        "[x](//evil.example/x)",
        "[x](/api/halt)",
        "[x](#top)",
        "[x](https:evil)",
        "<javascript:alert(1)>",
        "![x](http://evil.example/x.png)",
        "![x](data:image/png;base64,AAAA)",
        "![<img src=x onerror=alert(1)>](http://evil.example)",
        "[ref]\n\n[ref]: javascript:alert(1)",
        '[x](https://a.example "onmouseover=alert(1)")',
        '[x](https://a.example/"onclick="alert(1))',
        "```html\n</code></pre><script>alert(1)</script>\n```",
        '``` "><script>alert(1)</script>\nx\n```',
        "<!-- --><style>*{display:none}</style>",
        "<iframe src=https://evil.example></iframe>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "\u202e<script>",
        "<form action=/api/runs><button>x",
    ],
)
def test_nothing_hostile_comes_through(hostile: str) -> None:
    looked = Looked(render(f"before {hostile}\n\n{hostile}\n"))

    assert looked.wrong == []
    assert "img" not in looked.tags


@given(st.text(alphabet=st.sampled_from(list("<>[]()!\"'&;:/\\`*_#|\n \tabjavscript:onerr=hp")), max_size=200))
def test_no_text_at_all_makes_a_tag_of_its_own(text: str) -> None:
    assert Looked(render(text)).wrong == []


def test_an_image_is_shown_as_its_description() -> None:
    assert render("![a chart](https://example.com/x.png)").strip() == "<p>a chart</p>"


@pytest.mark.parametrize(
    "bomb", ["[" * 50_000, "> " * 20_000, "*a " * 30_000, "`" * 50_001, "![" * 30_000, "<" * 50_000]
)
def test_a_text_that_is_made_to_take_long_does_not(bomb: str) -> None:
    began = time.process_time()

    render(bomb)

    assert time.process_time() - began < 5


def test_a_very_long_text_is_given_as_it_is() -> None:
    html = render("<b>" + "x" * MOST_CHARS)

    assert html.startswith("<pre>&lt;b&gt;")


def test_the_side_of_a_cell_is_no_style() -> None:
    """The policy of the page knows no styles in HTML; a browser would report each of them."""
    html = render("| a | b |\n| - | -: |\n| 1 | 2 |\n")

    assert "style=" not in html
    assert '<td align="right">2</td>' in html


# -- for many at once


class Counted:
    """Counts how often, and how often at the same time, something is rendered."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.most = 0
        self._now = 0

    def __call__(self, text: str) -> str:
        self._now += 1
        self.most = max(self.most, self._now)
        self.texts.append(text)
        time.sleep(0.02)
        self._now -= 1
        return f"<p>{text}</p>"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counting = Counted()
    monkeypatch.setattr(markdown, "render", counting)
    return counting


@pytest.mark.anyio
async def test_a_text_is_rendered_once_whoever_asks_and_no_two_at_the_same_time(counted: Counted) -> None:
    """A thread that computes keeps the interpreter from taking somebody else's cancel; several keep it longer."""
    renderer = markdown.Renderer()

    first = await asyncio.gather(*[renderer.render(text) for text in ("one", "two", "one", "three", "two", "one")])
    again = await renderer.render("two")

    assert first == [f"<p>{text}</p>" for text in ("one", "two", "one", "three", "two", "one")]
    assert again == "<p>two</p>"
    assert sorted(counted.texts) == ["one", "three", "two"]
    assert counted.most == 1


@pytest.mark.anyio
async def test_texts_that_would_wait_for_long_are_given_as_they_are(counted: Counted) -> None:
    renderer = markdown.Renderer()
    texts = [f"{n} {'a*' * 9000}" for n in range(30)]

    told = await asyncio.gather(*[renderer.render(text) for text in texts])

    assert len(counted.texts) == markdown.MOST_WAITING_CHARS // len(texts[0])
    assert told[-1] == f"<pre>{texts[-1]}</pre>"
    assert len(await renderer.render("later")) > 0
    assert counted.texts[-1] == "later"


@pytest.mark.anyio
async def test_so_many_rendered_texts_are_kept_and_no_more(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "KEPT", 2)
    renderer = markdown.Renderer()

    for text in ("one", "two", "one", "three", "one", "two"):
        await renderer.render(text)

    assert counted.texts == ["one", "two", "three", "two"]
