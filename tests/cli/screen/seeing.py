"""Paragraphs as the lines a person would read, and in which style a word stands."""

from __future__ import annotations

from collections.abc import Sequence

from checkrein.cli.screen.sheet import Paragraph, lines_of


def drawn(texts: Sequence[Paragraph], width: int = 80) -> list[str]:
    return [line.plain.rstrip() for line in lines_of(texts, width)[0]]


def style_of(texts: Sequence[Paragraph], word: str) -> str:
    """The style of the first part with this word in it."""
    return next(style for text in texts for part, style in text.parts if word in part)
