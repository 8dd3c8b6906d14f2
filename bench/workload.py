"""What runs are made of here: single calls, and whole histories as the core itself would decide them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Final

from checkrein.core.commands import (
    Command,
    FinishCall,
    PauseRun,
    RedirectRun,
    ResumeRun,
    SettleVerb,
    StartCall,
    TakeOver,
)
from checkrein.core.conditions import Usage
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, Outcome, Status
from checkrein.core.events import (
    CallFinished,
    CallStarted,
    EffectSettled,
    Event,
    Json,
    RunCreated,
    RunStarted,
    StepFinished,
    StepStarted,
)
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.journal import Journal, Lease, Owner

LEASE_SECONDS: Final = 3600.0
LARGE_APPEND: Final = 1000
OWNER: Final = Owner(process="bench", host="bench")

ARGUMENTS: Final = Json(json.dumps({"customer": "c-20417", "since": "2026-01-01"}, separators=(",", ":")).encode())
RESULT: Final = Json(json.dumps({"score": 0.83, "rows": 412, "note": "late twice"}, separators=(",", ":")).encode())

_random: Final = random.Random(20417)


def new_id() -> str:
    """Like a UUID, in no order, which is the hardest for an index; the same in every run of the benchmarks."""
    return f"{_random.getrandbits(128):032x}"


# -- single events


def created(run: str) -> RunCreated:
    return RunCreated(
        id=new_id(), at=time.time(), run=run, agent="churn", goal="Which customers will churn?", thread="t", owner="ann"
    )


def started(call: str, epoch: int) -> CallStarted:
    """A permit of about 300 bytes."""
    return CallStarted(
        id=f"{call}#1",
        at=time.time(),
        call=call,
        kind=CallKind.TOOL,
        name="score_churn",
        epoch=epoch,
        key=f"key-{call}",
        step=3,
        arguments=ARGUMENTS,
        fingerprint=call[:16],
    )


def finished(call: str) -> CallFinished:
    """An outcome of about 250 bytes."""
    return CallFinished(
        id=new_id(),
        at=time.time(),
        call=call,
        outcome=Outcome.COMPLETED,
        result=RESULT,
        usage=Usage(input_tokens=1412, output_tokens=96, cost_usd=0.0031),
    )


def call_events(calls: int, epoch: int) -> list[Event]:
    """Calls one after the other: permit, outcome, permit, outcome."""
    ids = [new_id() for _ in range(calls)]
    return [event for call in ids for event in (started(call, epoch), finished(call))]


# -- runs in a journal


class DrivenRun:
    """A run with a driver, and what the driver has seen of it."""

    def __init__(self, journal: Journal, lease: Lease, seen: int) -> None:
        self._journal = journal
        self._lease = lease
        self.id = lease.run
        self.epoch = lease.epoch
        self.seen = seen

    def on(self, journal: Journal) -> DrivenRun:
        """The same run, seen through another journal."""
        return DrivenRun(journal, self._lease, self.seen)

    async def append(self, *events: Event) -> None:
        appended = await self._journal.append(self.id, events, after=self.seen, epoch=self.epoch)
        self.seen = appended.events[-1].seq

    async def append_timed(self, event: Event) -> float:
        began = time.perf_counter()
        await self.append(event)
        return time.perf_counter() - began

    async def fill(self, events: Sequence[Event]) -> None:
        """Append much, quickly."""
        for at in range(0, len(events), LARGE_APPEND):
            await self.append(*events[at : at + LARGE_APPEND])


async def begin(journal: Journal, run: str) -> DrivenRun:
    """Create a run and start driving it."""
    record = await journal.create(created(run))
    lease = await journal.claim(run, OWNER, seconds=LEASE_SECONDS)
    driven = DrivenRun(journal, lease, record.seq)
    await driven.append(RunStarted(id=new_id(), at=time.time(), epoch=lease.epoch, status=Status.RUNNING))
    return driven


async def filled(journal: Journal, run: str, length: int) -> DrivenRun:
    """A run that was at work until it had `length` events."""
    driven = await begin(journal, run)
    await driven.fill(history(run, length)[driven.seen :])
    return driven


# -- histories


def history(run: str, length: int) -> list[Event]:
    """The first `length` events of a run that is at work for ever: it begins with `run.created` and `run.started`.

    A turn is a model call and two tool calls at once, one of which has an effect that is settled nine times out of
    ten. A step takes four turns. Every 25 turns somebody pauses during a model call and resumes, every 100 turns
    somebody redirects.
    """
    writer = _Historian(run)
    turn = 0
    while len(writer.events) < length:
        writer.turn(turn)
        turn += 1
    return writer.events[:length]


class _Historian:
    def __init__(self, run: str) -> None:
        self.events: list[Event] = []
        self._at = time.time()
        first = created(run)
        self._state: State = evolve(None, first, 1)
        self.events.append(first)
        self._do(TakeOver(id=new_id(), at=self._now(), epoch=1, host="bench", pid=1))

    def turn(self, n: int) -> None:
        if n % 4 == 0:
            self._note(StepStarted(id=new_id(), at=self._now(), step=n // 4, title=f"Score churn risk, part {n // 4}"))
        if n % 25 == 24:
            self._pause_and_resume()
        if n % 100 == 99:
            instruction = "only customers of the third quarter"
            self._do(RedirectRun(id=new_id(), at=self._now(), by="ann", instruction=instruction))
        self._model_call(n)
        self._tool_calls(n)
        if n % 4 == 3:
            self._note(StepFinished(id=new_id(), at=self._now(), step=n // 4))

    def _model_call(self, n: int) -> None:
        call = self._start(CallKind.MODEL, "gpt", step=n // 4, delivers=self._state.instruction is not None)
        self._finish(call, Usage(input_tokens=900 + n, output_tokens=120, cost_usd=0.002), chunks=40, chars=512)

    def _tool_calls(self, n: int) -> None:
        draft = Effect(id="", what="a draft of the memo", undo="app.drafts:discard")
        score = self._start(CallKind.TOOL, "score_churn", step=n // 4)
        create = self._start(CallKind.TOOL, "create_draft", step=n // 4, opens=draft)
        self._finish(create, None)
        self._finish(score, None)
        if n % 10:
            self._note(EffectSettled(id=new_id(), at=self._now(), effect=create))

    def _pause_and_resume(self) -> None:
        call = self._start(CallKind.MODEL, "gpt")
        pause, resume = new_id(), new_id()
        self._do(PauseRun(id=pause, at=self._now(), by="ann", reason="let me look"))
        self._do(FinishCall(id=new_id(), at=self._now(), call=call, outcome=Outcome.ABORTED, chunks=7, chars=80))
        self._do(SettleVerb(id=new_id(), at=self._now(), accepted=pause))
        self._do(ResumeRun(id=resume, at=self._now(), by="ann"))
        self._do(SettleVerb(id=new_id(), at=self._now(), accepted=resume))
        self._start(CallKind.MODEL, "gpt", call=call, attempt=2)
        self._finish(call, Usage(input_tokens=900, output_tokens=120, cost_usd=0.002))

    def _start(
        self,
        kind: CallKind,
        name: str,
        *,
        call: str | None = None,
        attempt: int = 1,
        step: int | None = None,
        opens: Effect | None = None,
        delivers: bool = False,
    ) -> str:
        call = call or new_id()
        self._do(
            StartCall(
                id=new_id(),
                at=self._now(),
                epoch=1,
                call=call,
                kind=kind,
                name=name,
                attempt=attempt,
                key=f"key-{call}",
                step=step,
                arguments=ARGUMENTS,
                fingerprint=call[:16],
                opens=opens,
                delivers=delivers,
            )
        )
        return call

    def _finish(self, call: str, usage: Usage | None, *, chunks: int = 0, chars: int = 0) -> None:
        self._do(
            FinishCall(
                id=new_id(),
                at=self._now(),
                call=call,
                outcome=Outcome.COMPLETED,
                result=RESULT,
                usage=usage,
                chunks=chunks,
                chars=chars,
            )
        )

    def _do(self, command: Command) -> None:
        verdict = decide(self._state, command)
        assert isinstance(verdict, tuple), f"this history is not one: {verdict}"
        for event in verdict:
            self._note(event)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        self._state = evolve(self._state, event, len(self.events))

    def _now(self) -> float:
        self._at += 0.05
        return self._at
