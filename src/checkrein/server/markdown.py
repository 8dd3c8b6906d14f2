"""What a model wrote, as HTML that cannot do anything: no tags of its own, no images, no links but real ones.

Rendering computes, and a thread that computes keeps the interpreter from everything else. So for all requests of a
server together one text is rendered at a time, each once, and none that takes long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

SCHEMES: Final = frozenset({"http", "https", "mailto"})
MOST_CHARS: Final = 20_000
"""A longer text is given as it is: nobody reads it as a page, and it must not hold up anybody else."""
MOST_BRACKETS: Final = 2_000
"""The same for one that is made of brackets: each may begin a link, and is looked at from all those before it."""

MOST_WAITING_CHARS: Final = 200_000
"""While more than this waits to be rendered, the next text is given as it is too."""
KEPT: Final = 256
"""How many rendered texts are kept."""


class Renderer:
    """Renders in a thread of its own. Use it in one event loop at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="markdown")
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._waiting_chars = 0

    async def render(self, text: str) -> str:
        """Safe HTML for `text`; kept for whoever asks next."""
        kept = self._kept.get(text)
        if kept is not None:
            self._kept.move_to_end(text)
            return kept
        if not is_rendered(text) or self._waiting_chars + len(text) > MOST_WAITING_CHARS:
            return _plain(text)
        self._waiting_chars += len(text)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._once, text)
        finally:
            self._waiting_chars -= len(text)

    def _once(self, text: str) -> str:
        """In the thread, where nothing else is rendered: whoever waited for the same text finds it."""
        html = self._kept.get(text)
        if html is None:
            html = self._kept[text] = render(text)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return html


def is_rendered(text: str) -> bool:
    """Whether this is short and plain enough to be looked at as Markdown."""
    return len(text) <= MOST_CHARS and text.count("[") <= MOST_BRACKETS


def render(text: str) -> str:
    """Safe HTML for `text`. An image becomes its description, and a link that is none becomes text."""
    if not text:
        return ""
    return str(_markdown().render(text)) if is_rendered(text) else _plain(text)


def _plain(text: str) -> str:
    return f"<pre>{_escaped(text)}</pre>" if text else ""


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False, "maxNesting": 40})
    markdown.enable(["table", "strikethrough"])
    markdown.disable(["html_block", "html_inline"])
    markdown.validateLink = _is_link  # type: ignore[method-assign]
    markdown.add_render_rule("link_open", _link)
    markdown.add_render_rule("image", _image)
    for cell in ("th_open", "td_open"):
        markdown.add_render_rule(cell, _cell)
    return markdown


def _is_link(url: str) -> bool:
    """Only full addresses: a relative one would point into this page."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    if parts.scheme.lower() not in SCHEMES or any(ord(char) < 33 for char in url):
        return False
    return parts.scheme.lower() == "mailto" or bool(parts.hostname)


def _link(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return self.renderToken(tokens, index, options, env)


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]) -> str:
    """Its description: to show the image would tell its server who reads this, and when."""
    return _escaped(self.renderInlineAsText(tokens[index].children, options, env))


def _cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: dict[str, Any]) -> str:
    """On which side its text stands is an attribute: the page's policy knows no styles in HTML."""
    style = str(tokens[index].attrs.pop("style", ""))
    if style:
        tokens[index].attrSet("align", style.removeprefix("text-align:"))
    return self.renderToken(tokens, index, options, env)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
