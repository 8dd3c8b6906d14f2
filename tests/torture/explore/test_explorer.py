"""P1 to P4, and the other promises of a stop, in every interleaving within explicit bounds.

The search drives the real `decide`, `evolve`, `orders` and the journal's real rules of admission. It shows D3 and D26
(nothing is issued after a cancel), D7 (one winner), D30 (a resume does not re-do a call) and D33 (cancel undoes).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

import pytest

from checkrein.core.enums import CallKind, OnPause, Status
from tests.golden.worlds import assert_visited_as_recorded, name_of
from tests.torture.explore.mutations import BUGS, Bug
from tests.torture.explore.search import CounterExample, Found, explore
from tests.torture.explore.world import Bounds, Kind

TOOL = Kind()
NO_UNDO = Kind(undo=False)
IDEMPOTENT = Kind(idempotent=True, on_pause=OnPause.ABORT)
ASKS = Kind(asks=True)
MODEL = Kind(kind=CallKind.MODEL, undo=False)
PROGRAM = Kind(kind=CallKind.PROCESS, undo=False)

SMALL: Mapping[str, Bounds] = {
    "a tool, a crash and a halt": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=0, halts=1, fences=1),
    "a tool, a freeze, rash drivers": Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=1, rash=True),
    "a tool, a freeze, a claim in vain": Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=1, vain=1),
    "a tool, a crash, slow readers": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=0, controllers=1),
    "a tool on other hosts, failing undo": Bounds(
        calls=(TOOL,), verbs=1, crashes=1, freezes=0, undo_failures=1, remote=True
    ),
    "a tool without undo": Bounds(calls=(NO_UNDO,), verbs=2, crashes=1, freezes=0),
    "an idempotent tool, replies twice": Bounds(calls=(IDEMPOTENT,), verbs=1, crashes=1, freezes=0, duplicates=1),
    "a model": Bounds(calls=(MODEL,), verbs=2, crashes=1, freezes=0),
    "a program, a crash": Bounds(calls=(PROGRAM,), verbs=2, crashes=1, freezes=0),
    "a program that asks a model": Bounds(calls=(PROGRAM, MODEL), verbs=1, crashes=0, freezes=0),
    "two tools": Bounds(calls=(TOOL, TOOL), verbs=1, crashes=0, freezes=0),
    "two tools, a crash": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=1, freezes=0),
    "a model and a tool, a crash": Bounds(calls=(MODEL, TOOL), verbs=0, crashes=1, freezes=0, duplicates=1),
    "a tool that does not answer": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=0, hangs=1),
    "a model that does not answer": Bounds(calls=(MODEL,), verbs=1, crashes=0, freezes=0, hangs=1),
    "two tools, one does not answer": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=0, freezes=0, hangs=1),
    "a program that fails, a crash": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=0, failures=1),
    "a sub-run from before a crash": Bounds(calls=(TOOL,), verbs=0, crashes=1, freezes=0, below=1),
    "a tool that asks, a crash, rash drivers": Bounds(calls=(ASKS,), verbs=1, crashes=1, freezes=0, rash=True),
}
"""Each kind of trouble by itself: some seconds."""

ONE_CALL: Mapping[str, Bounds] = {
    "a tool": Bounds(calls=(TOOL,), verbs=2, crashes=1, freezes=1),
    "a tool, rash drivers": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, rash=True),
    "a tool, two claims in vain": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, vain=2),
    "an idempotent tool, a claim in vain": Bounds(calls=(IDEMPOTENT,), verbs=1, crashes=1, freezes=1, vain=1),
    "a tool, slow readers": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, controllers=1),
    "a tool, two crashes": Bounds(calls=(TOOL,), verbs=2, crashes=2, freezes=0),
    "a tool, halt and a cancel above": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, halts=1, fences=1),
    "a tool on other hosts, failing undo": Bounds(
        calls=(TOOL,), verbs=1, crashes=1, freezes=1, undo_failures=1, remote=True
    ),
    "a tool without undo": Bounds(calls=(NO_UNDO,), verbs=2, crashes=1, freezes=0),
    "an idempotent tool, replies twice": Bounds(calls=(IDEMPOTENT,), verbs=1, crashes=1, freezes=1, duplicates=1),
    "a model": Bounds(calls=(MODEL,), verbs=2, crashes=1, freezes=1),
    "a program": Bounds(calls=(PROGRAM,), verbs=2, crashes=1, freezes=1),
    "a tool that does not answer": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, hangs=1),
    "a tool that does not answer, halt and a cancel above": Bounds(
        calls=(TOOL,), verbs=1, crashes=1, freezes=0, halts=1, fences=1, hangs=1
    ),
    "an idempotent tool that does not answer": Bounds(calls=(IDEMPOTENT,), verbs=1, crashes=1, freezes=1, hangs=1),
    "a program that fails": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, failures=1),
    "a program that fails twice, two crashes": Bounds(calls=(TOOL,), verbs=1, crashes=2, freezes=0, failures=2),
    "a program that fails, a tool that does not answer": Bounds(
        calls=(TOOL,), verbs=1, crashes=1, freezes=0, failures=1, hangs=1
    ),
    "a sub-run from before a crash": Bounds(calls=(TOOL,), verbs=1, crashes=1, freezes=1, below=1),
}

TWO_CALLS: Mapping[str, Bounds] = {
    "two tools, a freeze": Bounds(calls=(TOOL, TOOL), verbs=1, crashes=0, freezes=1),
    "two tools, a freeze, a claim in vain": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=0, freezes=1, vain=1),
    "two tools, a crash": Bounds(calls=(TOOL, TOOL), verbs=2, crashes=1, freezes=0),
    "two tools, a crash and a freeze": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=1, freezes=1),
    "an idempotent tool and a tool": Bounds(calls=(IDEMPOTENT, TOOL), verbs=0, crashes=1, freezes=1),
    "a program that asks a model": Bounds(calls=(PROGRAM, MODEL), verbs=2, crashes=1, freezes=0),
    "a model and a tool": Bounds(calls=(MODEL, TOOL), verbs=1, crashes=1, freezes=0, duplicates=1),
    "two tools that do not answer": Bounds(calls=(TOOL, TOOL), verbs=1, crashes=0, freezes=0, hangs=2),
    "two tools, one does not answer, a crash": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=1, freezes=0, hangs=1),
    "two tools that ask, a crash": Bounds(calls=(ASKS, ASKS), verbs=1, crashes=1, freezes=0),
    "two tools, a program that fails, a crash": Bounds(calls=(TOOL, TOOL), verbs=0, crashes=1, freezes=0, failures=1),
}

THREE_CALLS: Mapping[str, Bounds] = {
    "three tools, a crash": Bounds(calls=(TOOL, TOOL, TOOL), verbs=1, crashes=1, freezes=0, claims=6),
    "three tools, a freeze": Bounds(calls=(TOOL, TOOL, TOOL), verbs=0, crashes=0, freezes=1, claims=6),
    "model, idempotent tool, tool": Bounds(calls=(MODEL, IDEMPOTENT, TOOL), verbs=1, crashes=1, freezes=0, claims=6),
    "a tool, two slow readers": Bounds(calls=(TOOL,), verbs=1, crashes=0, freezes=1, controllers=2),
    "two tools, all at once": Bounds(calls=(TOOL, TOOL), verbs=1, crashes=1, freezes=1, claims=6),
}

PROCESSES = 2


def search_all(some: Mapping[str, Bounds], *, loud: bool = False) -> Iterator[tuple[str, Found]]:
    """Every search to its end, two at a time."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        running = {
            pool.submit(explore, bounds, progress=partial(print, f"  {name}:", flush=True) if loud else None): name
            for name, bounds in some.items()
        }
        for done in as_completed(running):
            yield running[done], done.result()


def report(found: Mapping[str, Found], title: str, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{title}: {sum(f.worlds for f in found.values()):,} worlds, every one checked")
        for name, one in sorted(found.items()):
            print(f"  {name:38} {one}")


def test_every_promise_holds_in_every_interleaving_with_one_kind_of_trouble_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {name: explore(bounds) for name, bounds in SMALL.items()}

    report(found, "One and two calls, one kind of trouble", capsys)
    assert_every_status_is_reached(found)


@pytest.mark.torture
def test_every_promise_holds_in_every_interleaving_of_one_and_of_two_calls(capsys: pytest.CaptureFixture[str]) -> None:
    found = dict(search_all({**TWO_CALLS, **ONE_CALL}))

    report(found, "One and two calls", capsys)
    assert_every_status_is_reached(found)


def assert_every_status_is_reached(found: Mapping[str, Found]) -> None:
    statuses = frozenset.union(*(one.statuses for one in found.values()))
    assert statuses == frozenset(Status), "a status that is never reached proves nothing"


@pytest.mark.torture
def test_every_promise_holds_in_every_interleaving_of_three_calls(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        found = dict(search_all(THREE_CALLS, loud=True))

    report(found, "Three calls", capsys)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_search_finds_a_planted_bug(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)

    with pytest.raises(CounterExample) as found:
        explore(bug.bounds)

    assert bug.breaks == "any" or found.value.violation.startswith(bug.breaks)


@pytest.mark.parametrize("bounds", sorted({bug.bounds for bug in BUGS}, key=repr))
def test_without_a_bug_the_same_bounds_hold_and_as_many_worlds_are_visited_as_recorded(bounds: Bounds) -> None:
    assert_visited_as_recorded({name_of(bounds): explore(bounds)})
