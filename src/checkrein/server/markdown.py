"""What a model wrote, as HTML that cannot do anything: no tags of its own, no images, no links but real ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

SCHEMES: Final = frozenset({"http", "https", "mailto"})
MOST_CHARS: Final = 200_000
"""A longer text is given as it is: nobody reads it as a page, and it must not hold up anybody else."""
MOST_BRACKETS: Final = 2_000
"""The same for one that is made of brackets: each may begin a link, and is looked at from all those before it."""


def render(text: str) -> str:
    """Safe HTML for `text`. An image becomes its description, and a link that is none becomes text."""
    if not text:
        return ""
    if len(text) > MOST_CHARS or text.count("[") > MOST_BRACKETS:
        return f"<pre>{_escaped(text)}</pre>"
    return str(_markdown().render(text))


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
