"""How many worlds the search of `tests.torture.explore` visits. Its own tests compare: a second search takes long.

Fewer worlds: something can no longer happen. More: something can that could not before. Both have to be meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tests.golden.compare import DATA, pretty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.torture.explore.search import Found
    from tests.torture.explore.world import Bounds

FILE: Final = "worlds.json"


def name_of(bounds: Bounds) -> str:
    """Bounds that have no name of their own, in words."""
    calls = "+".join(
        f"{kind.kind.value}{'' if kind.undo else ' without undo'}{' that asks' if kind.asks else ''}"
        for kind in bounds.calls
    )
    rest = ", ".join(f"{name} {value}" for name, value in bounds._asdict().items() if name != "calls" and value)
    return f"{calls}: {rest}"


def visited(found: Mapping[str, Found]) -> str:
    """What searches have found, without how long they took."""
    return pretty({name: _counts(one) for name, one in found.items()})


def _counts(found: Found) -> dict[str, int]:
    return {"worlds": found.worlds, "moves": found.edges, "finished": found.finished, "depth": found.depth}


def assert_visited_as_recorded(found: Mapping[str, Found]) -> None:
    """Each search has visited as many worlds as when it was recorded."""
    recorded = msgspec.json.decode((DATA / FILE).read_bytes())
    before = {name: recorded.get(name) for name in found}
    now = {name: _counts(one) for name, one in found.items()}
    assert now == before, "If this is intended, record it again: python -m tests.golden.record worlds"


def search_small() -> str:
    """The searches within the bounds of the planted bugs: less than a minute."""
    from tests.torture.explore.mutations import BUGS
    from tests.torture.explore.search import explore

    return visited({name_of(bounds): explore(bounds) for bounds in {bug.bounds for bug in BUGS}})
