"""The page about statuses is generated from the table and cannot drift from it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from checkrein.core.diagram import status_page
from checkrein.core.table import VERBS
from checkrein.core.words import TERMINAL, Status, Verb

PAGE: Final = Path(__file__).parents[2] / "docs" / "design" / "status.md"


def test_the_page_in_the_docs_is_the_one_that_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == status_page(), "run `make docs`"


def test_the_page_has_a_cell_for_every_pair() -> None:
    rows = [line for line in status_page().splitlines() if line.startswith("| ") and "---" not in line]
    cells = {
        (Status(row[0]), Verb(verb)): cell
        for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in rows[1:])
        for verb, cell in zip([v.strip() for v in rows[0].strip("|").split("|")][1:], row[1:], strict=True)
    }

    assert len(cells) == len(Status) * len(Verb)
    assert {pair for pair, cell in cells.items() if cell != "–"} == set(VERBS)


def test_every_status_is_in_the_picture_and_only_finished_ones_have_no_way_out() -> None:
    """D24"""
    picture = status_page().split("```")[1]
    arrows = [line.strip().split(":")[0].split(" --> ") for line in picture.splitlines() if "-->" in line]

    assert {Status(end) for arrow in arrows for end in arrow if end != "[*]"} == set(Status)
    assert {Status(start) for start, end in arrows if end == "[*]"} == TERMINAL
    assert not any(start in TERMINAL and end != "[*]" for start, end in arrows)
