"""The rules of admission as a table: who, in which state of the run, gets how much of an append taken."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from checkrein.core.enums import CallKind, Status, Verb
from checkrein.core.events import DECIDING, DECISIONS, EVENTS, UNOWNED, CallStarted, Event, RunCreated, VerbAccepted
from checkrein.errors import Conflict, Fenced, MisuseError, RunOver, StaleEpoch, StoreFull
from checkrein.journal.admission import FenceLevel, Head, admit, advance, answer_id, is_repeat, propose, remainder
from checkrein.journal.base import Recorded
from tests.journal.build import answered, ended, opened, outcome, permit, reason, settled_effect, undo, verb

RUNNING = Head(seq=9, decided=5, epoch=2, status=Status.RUNNING)
OVER = Head(seq=9, decided=9, epoch=2, status=Status.COMPLETED)
WORK: list[Event] = [outcome(), permit(), opened()]

# fmt: off
TABLE = [
    # what            after epoch  head     cover         full    taken refusal
    ("facts",         0,    2,     RUNNING, FenceLevel.NONE,   False,  2,    None),
    ("facts",         0,    2,     RUNNING, FenceLevel.HALT,   True,   2,    None),
    ("facts",         0,    1,     RUNNING, FenceLevel.NONE,   False,  0,    StaleEpoch),
    ("facts",         0,    3,     RUNNING, FenceLevel.NONE,   False,  0,    MisuseError),
    ("facts",         9,    2,     OVER,    FenceLevel.NONE,   False,  0,    RunOver),
    ("work",          5,    2,     RUNNING, FenceLevel.NONE,   False,  3,    None),
    ("work",          9,    2,     RUNNING, FenceLevel.NONE,   False,  3,    None),
    ("work",          10,   2,     RUNNING, FenceLevel.NONE,   False,  0,    MisuseError),
    ("work",          4,    2,     RUNNING, FenceLevel.NONE,   False,  1,    Conflict),
    ("work",          4,    2,     RUNNING, FenceLevel.HALT,   True,   1,    Conflict),
    ("work",          5,    2,     RUNNING, FenceLevel.CANCEL, False,  1,    Fenced),
    ("work",          5,    2,     RUNNING, FenceLevel.HALT,   False,  1,    Fenced),
    ("work",          5,    2,     RUNNING, FenceLevel.NONE,   True,   1,    StoreFull),
    ("work",          5,    1,     RUNNING, FenceLevel.NONE,   False,  0,    StaleEpoch),
    ("undo",          5,    2,     RUNNING, FenceLevel.CANCEL, False,  2,    None),
    ("undo",          5,    2,     RUNNING, FenceLevel.HALT,   False,  1,    Fenced),
    ("undo",          5,    2,     RUNNING, FenceLevel.NONE,   True,   2,    None),
    ("cancel",        5,    None,  RUNNING, FenceLevel.HALT,   True,   1,    None),
    ("cancel",        4,    None,  RUNNING, FenceLevel.NONE,   False,  0,    Conflict),
    ("cancel",        9,    None,  OVER,    FenceLevel.NONE,   False,  0,    RunOver),
    ("reason",        0,    None,  OVER,    FenceLevel.HALT,   True,   1,    None),
    ("answers",       0,    1,     RUNNING, FenceLevel.HALT,   True,   2,    None),
    ("answers",       0,    1,     OVER,    FenceLevel.HALT,   True,   2,    None),
    ("end",           5,    2,     RUNNING, FenceLevel.HALT,   True,   1,    None),
]
# fmt: on

APPENDS: dict[str, list[Event]] = {
    "facts": [outcome(), settled_effect()],
    "work": WORK,
    "undo": [outcome(), undo()],
    "cancel": [verb(Verb.CANCEL)],
    "reason": [reason()],
    "answers": [answered("a", 1), answered("b", 1)],
    "end": [ended()],
}


@pytest.mark.parametrize(("what", "after", "epoch", "head", "cover", "full", "taken", "refusal"), TABLE)
def test_what_is_taken_of_an_append(what, after, epoch, head, cover, full, taken, refusal):
    proposal = propose(APPENDS[what], after=after, epoch=epoch)

    assert admit(proposal, head, cover=cover, is_full=full) == (taken, refusal)


def test_only_decisions_decide_or_change_the_status():
    """What allows the facts of an append to be taken without touching anything but the seq."""
    assert DECIDING - {RunCreated} <= DECISIONS
    assert {kind for kind in EVENTS if hasattr(kind, "status")} - {RunCreated} <= DECIDING


def test_an_append_that_is_taken_moves_the_head_to_its_last_deciding_event():
    pause = propose([outcome(), verb(), opened(), reason()], after=9, epoch=2)

    assert advance(RUNNING, pause, 4) == Head(13, 11, 2, Status.PAUSING)
    assert advance(RUNNING, pause, 1) == RUNNING._replace(seq=10)


def test_facts_move_only_the_seq():
    facts = propose(APPENDS["facts"], after=9, epoch=2)

    assert advance(RUNNING, facts, 2) == RUNNING._replace(seq=11)


def test_what_remains_of_a_repeat_is_what_was_not_recorded():
    proposal = propose(WORK, after=9, epoch=2)
    fact, *decisions = WORK

    assert remainder(proposal, {}) is proposal
    assert remainder(proposal, recorded(*WORK)) is None
    left = remainder(proposal, recorded(fact))
    assert left is not None
    assert left.events == tuple(decisions)
    with pytest.raises(MisuseError):
        remainder(proposal, recorded(decisions[0]))


def recorded(*events: Event) -> dict[str, Recorded]:
    return {event.id: Recorded("r", 1, event, b"", b"") for event in events}


def test_an_id_says_one_thing():
    """A verb may be asked for again; another verb, another event, or another permit under the same id is a mistake."""
    pause = VerbAccepted(id="x", at=1.0, verb=Verb.PAUSE, status=Status.PAUSING, by="a")
    permit = CallStarted(id="x", at=1.0, call="c", kind=CallKind.TOOL, name="mail", epoch=1)

    assert is_repeat(pause, replace(pause, at=2.0))
    assert not is_repeat(pause, replace(pause, verb=Verb.CANCEL))
    assert not is_repeat(permit, pause)
    assert is_repeat(permit, permit)
    assert not is_repeat(permit, replace(permit, at=2.0))
    with pytest.raises(MisuseError, match="says one thing"):
        remainder(propose([permit], after=1, epoch=1), recorded(pause))


def test_everything_unowned_may_come_without_an_epoch_and_nothing_else():
    for what, events in APPENDS.items():
        kinds = {type(event) for event in events}
        if kinds <= UNOWNED:
            propose(events, after=9, epoch=None)
        else:
            with pytest.raises(MisuseError):
                propose(events, after=9, epoch=None)
        assert propose(events, after=9, epoch=2).shape.is_urgent == (what == "cancel")


def test_there_is_one_answer_per_call_and_epoch():
    assert len({answer_id("a", 1), answer_id("a", 2), answer_id("b", 1), answer_id("a:1", 1)}) == 4
