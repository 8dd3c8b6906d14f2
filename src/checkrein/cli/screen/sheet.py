"""Paragraphs on a part of the screen, wrapped to its width, of which only what fits is drawn.

A paragraph is a list of parts (a text and a style each). Texts are never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from checkrein.cli.screen.style import QUIET, Part

_KEPT: Final = 1_000
"""How many wrapped paragraphs are remembered, so that only what changes is wrapped again."""


class Paragraph(NamedTuple):
    parts: tuple[Part, ...]
    indent: int = 0
    """How far its second line and those after are set in."""
    longest: int = 0
    """How many lines it may have; what is longer is cut with an ellipsis. 0: as many as it needs."""
    is_marked: bool = False
    """Keep it in view."""
    fill: str = ""
    """A style for the whole width of its lines."""
    gutter: str = ""
    """What stands before each of its lines."""


def paragraph(
    *parts: Part | str, indent: int = 0, longest: int = 0, is_marked: bool = False, fill: str = "", gutter: str = ""
) -> Paragraph:
    plain = tuple((part, "") if isinstance(part, str) else part for part in parts)
    return Paragraph(plain, indent, longest, is_marked, fill, gutter)


@lru_cache(maxsize=_KEPT)
def wrapped(text: Paragraph, width: int) -> tuple[Content, ...]:
    """The lines of a paragraph at this width."""
    width -= len(text.gutter)
    indent = text.indent if text.indent < width // 2 else 0
    content = Content.assemble(*text.parts).expand_tabs()
    lines = content.wrap(max(1, width))
    if len(lines) > 1 and len(lines[0].plain.rstrip()) < indent:
        # A word too long for the line would leave its mark alone there: it is broken instead.
        lines = [content.truncate(max(1, width))]
        lines += [content[len(lines[0].plain) :]]
    if len(lines) > 1 and indent:
        lines = [lines[0], *_after(lines[:1], content).wrap(max(1, width - indent))]
    if text.longest and len(lines) > text.longest:
        kept = lines[: text.longest - 1]
        lines = [*kept, _after(kept, content).truncate(max(1, width - (indent if kept else 0)), ellipsis=True)]
    lines = [line.pad_left(indent if n else 0) for n, line in enumerate(lines)]
    if text.gutter:
        lines = [Content.assemble((text.gutter, QUIET), line) for line in lines]
    if text.fill:
        lines = [line.pad_right(max(0, width - line.cell_length)).stylize_before(text.fill) for line in lines]
    return tuple(lines)


def _after(lines: Sequence[Content], content: Content) -> Content:
    """What follows after these lines, without the spaces that the last was broken at."""
    for line in lines:
        end = max(1, len(line.plain.rstrip()))
        end += len(content.plain[end:]) - len(content.plain[end:].lstrip(" "))
        content = content[end:]
    return content


def lines_of(texts: Sequence[Paragraph], width: int) -> tuple[list[Content], int | None]:
    """Every line of these paragraphs, and the number of the first marked one."""
    lines: list[Content] = []
    marked: int | None = None
    for text in texts:
        if text.is_marked and marked is None:
            marked = len(lines)
        lines += wrapped(text, width)
    return lines, marked


class Panel(Static):
    """As high as its paragraphs need."""

    DEFAULT_CSS: ClassVar[str] = "Panel { height: auto; } Panel.-empty { display: none; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._shown: tuple[tuple[Paragraph, ...], int] = ((), 0)
        self._height = 0

    def show(self, texts: Sequence[Paragraph], width: int) -> None:
        if self._shown == (tuple(texts), width):
            return
        self._shown = (tuple(texts), width)
        lines, _ = lines_of(texts, max(1, width))
        self.set_class(not lines, "-empty")
        self.update(Content("\n").join(lines), layout=len(lines) != self._height)
        self._height = len(lines)


class Sheet(Widget):
    """Shows the end of its paragraphs, or what is around the marked one; scrolling back holds it where it is."""

    DEFAULT_CSS: ClassVar[str] = "Sheet { height: 1fr; }"

    def __init__(self, *, id: str, follows_end: bool) -> None:
        super().__init__(id=id)
        self._follows_end = follows_end
        self._texts: Sequence[Paragraph] = ()
        self._top: int | None = None
        """The first line shown, where a person has scrolled to; None: it follows."""

    class Resized(Message):
        """It has another size now."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def show(self, texts: Sequence[Paragraph]) -> None:
        if texts != self._texts:
            self._texts = texts
            self.refresh()

    def scroll_lines(self, by: int) -> None:
        """Move by so many lines; the end follows again once it is reached."""
        lines, marked = lines_of(self._texts, self.size.width)
        last = max(0, len(lines) - self.size.height)
        top = self._first(len(lines), marked) + by
        self._top = None if self._follows_end and top >= last else max(0, min(top, last))
        self.refresh()

    def follow(self) -> None:
        self._top = None
        self.refresh()

    def render(self) -> Content:
        lines, marked = lines_of(self._texts, self.size.width)
        first = self._first(len(lines), marked)
        shown = lines[first : first + self.size.height]
        if self._top is not None and first + len(shown) < len(lines):
            below = len(lines) - first - len(shown)
            shown[-1] = Content.assemble((f"↓ {below + 1} more lines (End follows)", QUIET))
        return Content("\n").join(shown)

    def _first(self, count: int, marked: int | None) -> int:
        height = self.size.height
        last = max(0, count - height)
        if self._top is not None:
            return min(self._top, last)
        if self._follows_end:  # from the mark on, if what follows it does not fit
            return last if marked is None else min(marked, last)
        return 0 if marked is None else max(0, min(marked - height // 3, last))
