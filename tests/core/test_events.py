"""Events as they are stored: every kind survives the journal, and every kind is classified."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

from checkrein.core import events
from checkrein.core.effects import EFFECT_EVENTS
from checkrein.core.enums import CallKind, Outcome, Status, Verb
from checkrein.core.events import (
    AFTER_THE_END,
    DECIDING,
    DECISIONS,
    EVENTS,
    UNOWNED,
    CallFinished,
    CallStarted,
    Event,
    RunCreated,
    RunFinished,
    VerbAccepted,
    VerbSettled,
    is_taken_after_the_end,
)

DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(reduce(or_, EVENTS))
TYPES: Final = """
    run.created · run.started · run.finished, plan.published, step.started · step.finished, call.started · call.finished
    · call.answered, effect.opened · effect.settled · effect.undone · effect.in_doubt · effect.left, verb.accepted ·
    verb.settled, reason.added, approval.requested · approval.decided, condition.tripped, watcher.flagged,
    instruction.delivered, retry.scheduled
    call.resolved effect.reopened
"""
"""As the design lists them, and the two that end a doubt."""


def tag(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag)


def sample(of: inspect.Type) -> Any:
    """Some value of a type, as far from its default as can be."""
    match of:
        case inspect.StructType(cls, fields=fields):
            return cls(**{field.name: sample(field.type) for field in fields})
        case inspect.UnionType(types):
            return sample(next(t for t in types if not isinstance(t, inspect.NoneType)))
        case inspect.EnumType(cls):
            return list(cls)[-1]
        case inspect.VarTupleType(item):
            return (sample(item), sample(item))
        case inspect.TupleType(items):
            return tuple(sample(item) for item in items)
        case inspect.RawType():
            return msgspec.Raw(b'{"to": "ann", "n": 1.5}')
        case inspect.StrType():
            return "“Würde” \n"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 1763210096.123456
    raise AssertionError(of)


@pytest.mark.parametrize("kind", EVENTS, ids=tag)
def test_every_event_comes_back_from_the_journal_as_it_went_in(kind: type[Event]) -> None:
    """D8: events are typed."""
    event: Event = sample(inspect.type_info(kind))

    body = msgspec.json.encode(event)
    decoded = DECODER.decode(body)

    assert type(decoded) is kind
    assert decoded == event
    assert msgspec.json.encode(decoded) == body


def test_a_result_that_is_null_is_not_the_absence_of_a_result() -> None:
    null = CallFinished(id="f", at=0, call="c", outcome=Outcome.COMPLETED, result=msgspec.Raw(b"null"))
    none = CallFinished(id="f", at=0, call="c", outcome=Outcome.COMPLETED)

    decoded = [DECODER.decode(msgspec.json.encode(event)) for event in (null, none)]

    assert decoded == [null, none]
    assert none.result is None


@pytest.mark.parametrize("kind", EVENTS, ids=tag)
def test_an_event_says_its_type_who_made_it_and_when(kind: type[Event]) -> None:
    wire = msgspec.json.decode(msgspec.json.encode(sample(inspect.type_info(kind))))

    assert wire["type"] == tag(kind)
    assert {"id", "at"} <= wire.keys()


def test_there_are_the_event_types_that_the_design_names_and_no_others() -> None:
    also = {"version.chosen", "call.checked", "check.asked", "stop.delayed", "verb.joined", "clock.set", "call.reused"}
    assert {tag(kind) for kind in EVENTS} == set(re.findall(r"\w+\.\w+", TYPES)) | also
    assert len(EVENTS) == len({tag(kind) for kind in EVENTS})


def test_no_event_is_forgotten_in_the_list() -> None:
    defined = {kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}

    assert set(EVENTS) == defined - {Event}


def test_every_event_that_permits_or_changes_what_is_permitted_is_a_decision() -> None:
    """What changes the rules is refused when the rules have changed meanwhile; only the beginning has no before."""
    assert {RunCreated} == DECIDING - DECISIONS
    assert CallStarted in DECISIONS - DECIDING, "a permit takes nothing from anybody, so a stop never loses to permits"


def test_what_happened_is_a_fact() -> None:
    facts = {tag(kind) for kind in set(EVENTS) - DECISIONS}

    assert facts == {
        "run.created", "plan.published", "step.started", "step.finished", "call.finished", "call.answered",
        "effect.settled", "effect.undone", "effect.in_doubt", "effect.left", "reason.added", "watcher.flagged",
        "retry.scheduled", "version.chosen", "call.checked", "check.asked", "stop.delayed", "verb.joined",
        "clock.set", "call.reused",
    }  # fmt: skip


def test_every_event_that_carries_a_status_is_a_decision() -> None:
    """P4: the status of a run changes only in full knowledge of the journal."""
    with_status = {kind for kind in EVENTS if "status" in kind.__struct_fields__}

    assert with_status <= DECISIONS
    assert {RunFinished, VerbAccepted, VerbSettled} <= with_status


def test_only_the_owner_of_a_run_permits_finishes_and_settles() -> None:
    """P1: whatever begins a call or ends a run needs the lease."""
    assert UNOWNED.isdisjoint({CallStarted, CallFinished, VerbSettled, RunFinished, events.RunStarted})
    assert VerbAccepted in UNOWNED


def test_after_the_end_a_run_takes_only_undos_answers_and_reasons() -> None:
    """D26: no surprise action after a stop."""
    for kind in set(EVENTS) - {CallStarted, CallFinished}:
        assert is_taken_after_the_end(sample(inspect.type_info(kind))) is (kind in AFTER_THE_END)
    for of in CallKind:
        permit = CallStarted(id="p", at=0, call="c", kind=of, name="n", epoch=1)
        assert is_taken_after_the_end(permit) is (of in (CallKind.UNDO, CallKind.ASK))
    for call in ("undo:draft", "ask:1", "draft"):
        finished = CallFinished(id="f", at=0, call=call, outcome=Outcome.COMPLETED)
        assert is_taken_after_the_end(finished) is (call != "draft")
    for verb in Verb:
        accepted = VerbAccepted(id="v", at=0, verb=verb, status=Status.COMPLETED, by="ann")
        assert is_taken_after_the_end(accepted) is (verb is Verb.ASK)


def test_the_ledger_follows_exactly_the_events_that_name_an_effect() -> None:
    named = {kind for kind in EVENTS if tag(kind).startswith("effect.")}

    assert named == EFFECT_EVENTS
    assert all("effect" in kind.__struct_fields__ for kind in named)


def test_a_created_run_is_queued() -> None:
    created = RunCreated(id="c", at=0, run="r-1", agent="a", goal="g", thread="t")

    assert created.status is Status.QUEUED
