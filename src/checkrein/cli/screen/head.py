"""The top of the screen: how the run stands, its goal, and what it is called."""

from __future__ import annotations

from checkrein.cli.screen.sheet import Paragraph, paragraph
from checkrein.cli.screen.words import QUIET, STRONG, look_of, one_line
from checkrein.control.view import RunView


def head(view: RunView, rows: int) -> list[Paragraph]:
    goal = paragraph(
        look_of(view).part(), "  ", (one_line(view.goal, 400), STRONG), indent=2, longest=2 if rows >= 24 else 1
    )
    names = f"agent {one_line(view.agent, 60)} · run {view.id} · thread {one_line(view.thread, 60)}"
    if view.thread == view.id:
        names = f"agent {one_line(view.agent, 60)} · run {view.id}"
    return [goal] if rows < 12 else [goal, paragraph((names, QUIET), longest=1)]
