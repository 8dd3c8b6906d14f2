"""What each verb does to each kind of call in flight, as the core decides it: every cell of the stop table.

What is expected is written out here once more from the design, not read from the table under test. That a call is then
really stopped, held or left alone is seen from outside in `tests/promises/test_stop_table.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from checkrein.core import transitions
from checkrein.core.commands import StartCall
from checkrein.core.consequences import controls
from checkrein.core.decide.verdict import Verdict
from checkrein.core.enums import Answer, CallKind, OnPause, Verb, When
from checkrein.core.transitions import STOPS, Fate, Stop, Stoppable
from tests.core.story import Story, events_of, refusal_of

EXPECTED: Final = """
              pause   redirect,now  redirect,next_step  cancel  abort  halt
model         stop    stop          finish              stop    stop   stop
tool/finish   finish  stop          finish              stop    stop   stop
tool/abort    stop    stop          finish              stop    stop   stop
tool/hold     hold    stop          finish              stop    stop   stop
run           hold    stop          finish              stop    stop   stop
process       hold    spare         spare               stop    stop   stop
ask           spare   spare         spare               stop    stop   stop
undo          finish  finish        finish              finish  spare  stop
"""


def expected() -> dict[tuple[Stoppable, Stop], Fate]:
    head, *rows = (line.split() for line in EXPECTED.strip().splitlines())
    return {
        (_row(name), Stop(stop.replace(",", ", "))): Fate(fate)
        for name, *fates in rows
        for stop, fate in zip(head, fates, strict=True)
    }


def _row(name: str) -> Stoppable:
    kind, _, rule = name.partition("/")
    return CallKind(kind), OnPause(rule) if rule else None


def in_flight(row: Stoppable) -> tuple[Story, str]:
    """A running run with one call of this kind in flight, and the id of the call."""
    kind, on_pause = row
    story = Story()
    match kind:
        case CallKind.ASK:
            (asked,) = events_of(story.ask())
            call = f"ask:{asked.id}"
            events_of(story.give(StartCall, call=call, kind=kind, name="x"))
            return story, call
        case CallKind.UNDO:
            story.crashes_in("x")
            events_of(story.resolve("x", Answer.UNDO))
            events_of(story.undo("x"))
            return story, "undo:x"
        case _:
            rule = on_pause or OnPause.FINISH
            events_of(story.tool("x", kind=kind, on_pause=rule, idempotent=rule is OnPause.ABORT))
            return story, "x"


GIVE: Final[dict[Stop, Callable[[Story, str], Verdict]]] = {
    Stop.PAUSE: lambda story, call: story.pause(),
    Stop.REDIRECT_NOW: lambda story, call: story.redirect(when=When.NOW),
    Stop.REDIRECT_NEXT_STEP: lambda story, call: story.redirect(when=When.NEXT_STEP),
    Stop.CANCEL: lambda story, call: story.cancel(),
    Stop.ABORT: lambda story, call: story.abort(call),
    Stop.HALT: lambda story, call: story.halt(),
}
VERB: Final = {stop: Verb(stop.value.partition(",")[0]) for stop in Stop}

CELLS: Final = list(expected())


def name(value: Stoppable | Stop) -> str:
    return value.value if isinstance(value, Stop) else "/".join(filter(None, value))


def check_cell(row: Stoppable, stop: Stop) -> None:
    story, call = in_flight(row)
    wanted = expected()[row, stop]
    if (wanted, stop) == (Fate.SPARE, Stop.ABORT):
        assert refusal_of(story.abort(call)).code == "not_in_flight"
        return

    events_of(GIVE[stop](story, call))

    live = story.state.live.get(call)
    if stop is Stop.HALT:
        assert live is None, "what an operator halts is in doubt at once"
        return
    assert live is not None
    assert (live.stop, live.hold) == (VERB[stop] if wanted is Fate.STOP else None, wanted is Fate.HOLD)
    if stop is Stop.PAUSE:
        is_settled = story.orders and type(story.orders[-1]).__name__ == "Settle"
        assert bool(is_settled) is (wanted is Fate.SPARE)


def test_the_expectations_speak_of_every_cell() -> None:
    assert set(expected()) == set(STOPS)
    assert {row[0] for row, _ in STOPS} == set(CallKind)
    assert {row[1] for row, _ in STOPS} == {None, *OnPause}


@pytest.mark.parametrize(("row", "stop"), CELLS, ids=name)
def test_a_verb_wants_of_a_call_what_the_design_says(row: Stoppable, stop: Stop) -> None:
    assert STOPS[row, stop] is expected()[row, stop]
    check_cell(row, stop)


@pytest.mark.parametrize(("row", "stop"), CELLS, ids=name)
def test_the_core_does_what_the_table_says_and_not_what_it_knows_by_itself(
    row: Stoppable, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is to be stopped and is spared instead, or the other way round, is noticed."""
    wanted = expected()[row, stop]
    monkeypatch.setattr(transitions, "STOPS", {**STOPS, (row, stop): Fate.SPARE if wanted is Fate.STOP else Fate.STOP})

    with pytest.raises(AssertionError):
        check_cell(row, stop)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Fate.FINISH, "waits for x, then holds"),
        (Fate.HOLD, "freezes x where it is"),
        (Fate.STOP, "stops x, which resume does again"),
        (Fate.SPARE, "holds here; nothing is lost"),
    ],
)
def test_the_words_of_the_pause_button_come_from_the_table(
    wanted: Fate, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = (CallKind.TOOL, OnPause.FINISH)
    story, _ = in_flight(row)
    monkeypatch.setattr(transitions, "STOPS", {**STOPS, (row, Stop.PAUSE): wanted})

    assert controls(story.state)[Verb.PAUSE].consequence == words


def test_the_words_of_the_redirect_button_come_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    row = (CallKind.TOOL, OnPause.FINISH)
    story, _ = in_flight(row)
    before = controls(story.state)[Verb.REDIRECT].consequence
    monkeypatch.setattr(transitions, "STOPS", {**STOPS, (row, Stop.REDIRECT_NOW): Fate.SPARE})

    after = controls(story.state)[Verb.REDIRECT].consequence

    assert (before, after) == ("stops x, keeps all finished work", "keeps all finished work")
