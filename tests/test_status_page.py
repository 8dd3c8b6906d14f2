"""The page about statuses is made from the two tables of the core and cannot drift from them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Final

from checkrein.core.enums import TERMINAL, Status, Verb
from checkrein.core.transitions import STOPS, VERBS, Stop

DOCS: Final = Path(__file__).parents[1] / "docs"
generate: Final = runpy.run_path(str(DOCS / "generate.py"), run_name="generate")


def status_page() -> str:
    page: str = generate["status_page"]()
    return page


def test_the_page_has_a_cell_for_every_pair() -> None:
    verbs = status_page().partition("\n## ")[0]
    rows = [line for line in verbs.splitlines() if line.startswith("| ") and "---" not in line]
    cells = {
        (Status(row[0]), Verb(verb)): cell
        for row in ([cell.strip() for cell in line.strip("|").split("|")] for line in rows[1:])
        for verb, cell in zip([v.strip() for v in rows[0].strip("|").split("|")][1:], row[1:], strict=True)
    }

    assert len(cells) == len(Status) * len(Verb)
    assert {pair for pair, cell in cells.items() if cell != "–"} == set(VERBS)


def test_the_page_has_a_row_for_every_kind_of_call_with_what_each_verb_does_to_it() -> None:
    stops = status_page().partition("\n## ")[2]
    _, *rows = [line for line in stops.splitlines() if line.startswith("| ") and "---" not in line]

    shown = {tuple(cell.strip() for cell in row.strip("|").split("|"))[1:] for row in rows}
    assert len(rows) == len({row for row, _ in STOPS})
    assert shown == {tuple(STOPS[row, stop].value for stop in Stop) for row, _ in STOPS}


def test_every_status_is_in_the_picture_and_only_finished_ones_have_no_way_out() -> None:
    """D24"""
    picture = status_page().split("```")[1]
    arrows = [line.strip().split(":")[0].split(" --> ") for line in picture.splitlines() if "-->" in line]

    assert {Status(end) for arrow in arrows for end in arrow if end != "[*]"} == set(Status)
    assert {Status(start) for start, end in arrows if end == "[*]"} == TERMINAL
    assert not any(start in TERMINAL and end != "[*]" for start, end in arrows)
