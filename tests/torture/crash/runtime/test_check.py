"""The checks can fail: each of them finds the bug that it is there for, planted in a diary, a journal or a runtime."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, EffectState, Outcome, Status, Undo, Verb
from checkrein.core.events import (
    CallAnswered,
    CallFinished,
    CallResolved,
    CallStarted,
    EffectInDoubt,
    EffectOpened,
    EffectReopened,
    EffectUndone,
    Event,
    RunCreated,
    RunFinished,
    RunStarted,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.receipts import Receipt
from checkrein.journal.base import Recorded
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.crash.crew import end, in_child, start
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.check import Attempt, Story, check_always, check_at_the_end
from tests.torture.crash.runtime.diary import Line
from tests.torture.crash.runtime.life import be_long_runtime
from tests.torture.crash.runtime.saga import stories

RUN = "r-1"
BOOKED = msgspec.Raw(b'"0.0 is done"')
SENT = msgspec.Raw(b'"0.1 is done"')


def started(
    call: str, attempt: int = 1, *, name: str = "book", epoch: int = 1, kind: CallKind = CallKind.TOOL
) -> Event:
    return CallStarted(
        id=f"{call}#{attempt}.{epoch}",
        at=0,
        call=call,
        kind=kind,
        name=name,
        epoch=epoch,
        attempt=attempt,
        effect=call.removeprefix("undo:") if name == "book" else None,
    )


def finished(call: str, outcome: Outcome, attempt: int = 1, result: msgspec.Raw | None = None) -> Event:
    return CallFinished(id=f"{call}#{attempt}.finished", at=0, call=call, outcome=outcome, result=result)


def answered(*, began: bool = True, result: msgspec.Raw | None = BOOKED) -> Event:
    return CallAnswered(
        id="answered:c1:1", at=0, call="c1", epoch=1, outcome=Outcome.COMPLETED, began=began, result=result
    )


def line(what: str, call: str, attempt: int = 1, *, tool: str = "book", item: str = "0.0", permit: int = 0) -> Line:
    return Line(0.0, 1, what, f"{RUN}/{call}", attempt, tool, item, permit)


def receipt(verb: Verb) -> Receipt:
    return Receipt(verb=verb, run=RUN, status=Status.CANCELLED, seq=1, by="person")


# A run that books and sends; it is killed in the middle of sending, a person says that it was not sent, and it is sent
# again. Then it is cancelled, and the booking is undone.
EVENTS: Sequence[Event] = (
    RunStarted(id="took.1", at=0, epoch=1, status=Status.RUNNING),
    started("c1"),
    EffectOpened(id="c1.effect", at=0, effect="c1", what="book", undo="x:y"),
    finished("c1", Outcome.COMPLETED, result=BOOKED),
    started("c2", name="send"),
    finished("c2", Outcome.IN_DOUBT),
    EffectInDoubt(id="c2.doubt", at=0, effect="c2"),
    RunStarted(id="took.2", at=0, epoch=2, status=Status.RUNNING),
    CallResolved(id="no", at=0, call="c2", answer=Answer.DID_NOT_HAPPEN, by="person"),
    started("c2", 2, name="send", epoch=2),
    finished("c2", Outcome.COMPLETED, 2, SENT),
    VerbAccepted(id="stop", at=0, verb=Verb.CANCEL, status=Status.CANCELLING, by="person"),
    started("undo:c1", epoch=2, kind=CallKind.UNDO),
    finished("undo:c1", Outcome.COMPLETED),
    EffectUndone(id="c1.undone", at=0, effect="c1"),
    VerbSettled(
        id="stopped", at=0, accepted="stop", verb=Verb.CANCEL, status=Status.CANCELLED, receipt=receipt(Verb.CANCEL)
    ),
    RunFinished(id="end", at=0, status=Status.CANCELLED),
)
LINES: Sequence[Line] = (
    line("begin", "c1", permit=2),
    line("done", "c1"),
    line("begin", "c2", tool="send", item="0.1", permit=5),
    line("begin", "c2", 2, tool="send", item="0.1", permit=10),
    line("done", "c2", 2, tool="send", item="0.1"),
    line("undo", "c1", permit=13),
    line("undone", "c1"),
)
EFFECTS = (Effect(id="c1", what="book", undo="x:y", state=EffectState.UNDONE),)
UNKNOWN: Sequence[Attempt] = (("c2", 1),)


CREATED = RunCreated(id="created", at=0, run=RUN, agent="a", goal="g", thread=RUN)
UNDONE_TOO_EARLY = (
    started("c5", epoch=2),
    CallFinished(id="c5.lost", at=0, call="c5", outcome=Outcome.IN_DOUBT, abandoned=True),
    started("undo:c5", epoch=2, kind=CallKind.UNDO),
)


def checked(
    events: Sequence[Event] = EVENTS,
    lines: Sequence[Line] = LINES,
    effects: Sequence[Effect] = EFFECTS,
    unknown: Sequence[Attempt] = UNKNOWN,
) -> list[str]:
    records = [Recorded(RUN, seq, event, b"", b"") for seq, event in enumerate(events, 1)]
    return check_at_the_end(Story(RUN, records, lines, unknown, effects))


def without(kind: type[Event], *, that: Callable[[Event], bool] = lambda event: True) -> list[Event]:
    return [event for event in EVENTS if not (isinstance(event, kind) and that(event))]


def before(kind: type[Event], *new: Event) -> list[Event]:
    at = next(n for n, event in enumerate(EVENTS) if isinstance(event, kind))
    return [*EVENTS[:at], *new, *EVENTS[at:]]


def changed(old: int, new: Line) -> list[Line]:
    return [*LINES[:old], new, *LINES[old + 1 :]]


def test_a_true_story_has_nothing_wrong():
    assert checked() == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: checked(lines=[*LINES[:2], LINES[0], *LINES[2:]]), "attempt 1 of c1 began 2 times"),
        (lambda: checked(lines=[LINES[0], LINES[1], line("begin", "c1", 2, permit=2), *LINES[2:]]), "c1 (0.0) began 2"),
        (lambda: checked(events=[e for e in EVENTS if e.id != "no"]), "c2 (0.1) began 2 times"),
        (lambda: checked(lines=changed(0, line("begin", "c1"))), "had no permit"),
        (lambda: checked(lines=changed(5, line("undo", "c1"))), "began without a permit"),
        (lambda: checked(lines=changed(0, line("begin", "c1", permit=99))), "is gone"),
        (lambda: checked(lines=changed(3, line("begin", "c9", tool="send", item="0.1"))), "several keys"),
        (lambda: checked(events=before(VerbAccepted, started("c1", epoch=2))), "was permitted 2 times"),
        (lambda: checked(events=before(VerbAccepted, started("c3", epoch=1))), "in the time of 2"),
        (lambda: checked(events=before(VerbSettled, started("c3", epoch=2))), "after the cancel"),
        (lambda: checked(lines=[*LINES[:1], *LINES[2:]]), "recorded as completed"),
        (lambda: checked(events=[*EVENTS[:5], finished("c2", Outcome.ABORTED), *EVENTS[6:]]), "nobody could know"),
        (lambda: checked(unknown=[("c1", 1)]), "nobody could know"),
        (lambda: checked(events=without(EffectInDoubt), unknown=[("c1", 1)]), "is not shown as in doubt"),
        (lambda: checked(lines=[*LINES, line("tick", "c1")]), "after its undo had begun"),
        (lambda: checked(lines=[*LINES, line("begin", "c1", 2, permit=2)]), "after its undo had begun"),
        (lambda: checked(lines=LINES[:-1]), "its undo never ended"),
        (lambda: checked(events=before(VerbSettled, EffectUndone(id="x", at=0, effect="c1"))), "as undone 2 times"),
        (lambda: checked(events=before(VerbAccepted, finished("c1", Outcome.ABORTED, 9))), "in the time of 2"),
        (lambda: checked(events=before(VerbAccepted, EffectInDoubt(id="x.1.7", at=0, effect="c1"))), "x.1.7 was"),
        (lambda: checked(events=before(VerbAccepted, answered(began=False))), "never to have begun"),
        (lambda: checked(events=before(VerbAccepted, answered(result=SENT))), "said to have completed"),
        (lambda: checked(events=(CREATED, *before(VerbSettled, *UNDONE_TOO_EARLY))), "before its former owner had"),
        (lambda: checked(events=without(RunFinished)), "the run ended like this: []"),
        (lambda: checked(events=without(CallFinished, that=lambda e: e.id == "c1#1.finished")), "has no outcome"),
        (lambda: checked(events=without(VerbSettled)), "settled 0 times"),
        (lambda: checked(effects=[msgspec.structs.replace(EFFECTS[0], state=EffectState.OPEN)]), "after the cancel"),
        (
            lambda: checked(
                events=before(VerbAccepted, EffectReopened(id="x", at=0, effect="c1", undo=True)),
                effects=[msgspec.structs.replace(EFFECTS[0], state=EffectState.LEFT)],
            ),
            "a person wanted c1 undone",
        ),
    ],
)  # fmt: skip
def test_a_story_with_a_planted_bug_is_found_out(wrong: Callable[[], list[str]], told: str):
    assert any(told in found for found in wrong()), wrong()


def test_a_cancel_without_undo_leaves_what_there_is():
    events = [
        msgspec.structs.replace(event, undo=Undo.NONE) if isinstance(event, VerbAccepted) else event
        for event in without(EffectUndone)
    ]

    assert checked(events=events, effects=[msgspec.structs.replace(EFFECTS[0], state=EffectState.LEFT)]) == []


def test_a_runtime_that_tries_again_what_it_should_not_is_found_out(hands, scratch):
    """The agent says of every tool that it is idempotent; the check knows better."""
    wrong = hands.submit(lie, scratch / "lies").result()

    assert any("c3 (0.1) began 2 times, and a person said 0 times" in one for one in wrong), wrong


def lie(where: Path) -> list[str]:
    """For a process of its own."""
    where.mkdir(parents=True)
    for life in (1, 2):
        runtime = start(partial(be_long_runtime, where, f"lies-{life}", lies=True), where / "errors")
        until = time.monotonic() + PATIENCE_SECONDS
        while sum(line.what == "begin" and line.call == "c3" for line in diary.read(where)) < life:
            if time.monotonic() > until:
                return [(where / "errors").read_text(), "it did not begin"]
            time.sleep(0.01)
        end(runtime)
    in_child(partial(_check_always, where), where / "errors")
    return (where / "wrong").read_text().splitlines()


def _check_always(where: Path) -> int:
    found = asyncio.run(stories(where, {}))
    (where / "wrong").write_text("\n".join(wrong for story in found for wrong in check_always(story)))
    return 0


def test_a_process_that_outlives_its_life_is_found_out():
    life = uuid.uuid4().hex  # the same test may run beside this one
    environment = {**os.environ, diary.LIFE: life}
    survivor = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
    try:
        assert list(diary.processes_of(life)) == [survivor.pid]
        assert list(diary.processes_of(f"not {life}")) == []
    finally:
        survivor.send_signal(signal.SIGKILL)
        survivor.wait()
    assert list(diary.processes_of(life)) == []
