"""Runs without a runtime: `decide`, `evolve` and the encoding of events with fixed ids and times, to the byte.

Each line of a recorded story is the hash of an event in its chain and the bytes of the event; at the end stand the
state that the events fold into, the ledger of effects, and what the controls say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from checkrein import Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns
from checkrein.core.commands import Command
from checkrein.core.conditions import Usage
from checkrein.core.consequences import controls
from checkrein.core.decide.verdict import Joined, Refusal, Verdict
from checkrein.core.enums import Answer, CallKind, OnPause, Outcome, Then, Undo, Verb, When
from checkrein.core.events import (
    CallChecked,
    CheckAsked,
    EffectSettled,
    Json,
    ReasonAdded,
    RetryScheduled,
    VersionChosen,
    WatcherFlagged,
)
from checkrein.core.orders import AnswerQuestion, Settle
from checkrein.journal.encoding import encode, genesis, link
from tests.core.story import Story, events_of, refusal_of


class Told(Story):
    """A story that remembers what was refused and what was joined: those are answers that must not change either."""

    def __init__(self, **given: Any) -> None:
        self.unrecorded: list[str] = []
        super().__init__(**given)

    def do(self, command: Command) -> Verdict:
        verdict = super().do(command)
        if isinstance(verdict, Refusal):
            self.unrecorded.append(f"{type(command).__name__} refused: {verdict.code}: {verdict.message}")
        elif isinstance(verdict, Joined):
            self.unrecorded.append(f"{type(command).__name__} joined: {verdict.accepted}")
        return verdict


def written(story: Told) -> str:
    """The story as it is recorded."""
    lines, last = [], genesis(story.state.run)
    for seq, event in enumerate(story.journal, start=1):
        body = encode(event)
        last = link(last, seq, body)
        lines.append(f"{last.hex()} {body.decode()}")
    lines.append(f"state {msgspec.json.encode(story.state, order='sorted').decode()}")
    lines += [f"effect {msgspec.json.encode(effect, order='sorted').decode()}" for effect in story.effects]
    said = controls(story.state, story.effects, held=story.held)
    lines += [
        f"{verb.value}: {msgspec.json.encode(said[verb], order='sorted').decode()}" for verb in Verb if verb in said
    ]
    return "\n".join([*lines, *story.unrecorded]) + "\n"


# -- without a stop


def completes() -> Told:
    story = Told()
    story.model("c1", place="turn:1")
    usage = Usage(input_tokens=12, output_tokens=5, cost_usd=0.25)
    story.finish("c1", usage=usage, chunks=3, chars=17, chunk_hash="abc", result=Json(b'{"text":"Working."}'))
    story.later(1.5)
    story.did("draft")
    story.complete(result=Json(b'"Done."'))
    return story


def fails() -> Told:
    story = Told()
    story.did("draft")
    story.fail()
    return story


def tool_fails() -> Told:
    story = Told()
    story.tool("send", effect=True, arguments=Json(b'{"to":"ann","n":1.5}'), timeout_seconds=2.5)
    story.finish("send", Outcome.FAILED, error="OSError: no route", files=("out.csv",))
    story.complete()
    return story


def steps_and_plan() -> Told:
    story = Told()
    story.plan("Fetch", "Score", "Write", finished=1)
    story.tool("score", step=2)
    story.finish("score")
    story.complete()
    return story


def noted() -> Told:
    """Everything that is only noticed."""
    story = Told()
    story.append(VersionChosen(id="v", at=story.at, name="scores-v2"))
    story.model("c1")
    story.append(WatcherFlagged(id="w", at=story.at, watcher="loops", what="says the same again", call="c1", offset=40))
    story.finish("c1", Outcome.FAILED, error="429", retry=True)
    story.append(RetryScheduled(id="s", at=story.at, call="c1", attempt=2, wait_seconds=0.5, why="429"))
    story.model("c1", attempt=2)
    story.finish("c1")
    story.complete()
    return story


# -- pause and resume


def pause_and_resume() -> Told:
    story = Told()
    story.model("c1")
    story.pause(reason="lunch")
    story.later(0.25)
    story.drive()
    story.later(60)
    story.resume("go on, but briefly", driven=True)
    story.drive()
    story.model("c1", attempt=2, delivers=True)
    story.finish("c1")
    story.drive()
    story.complete()
    return story


def pause_waits_for_a_tool() -> Told:
    story = Told()
    story.tool("send", effect=True)
    story.pause()
    story.drive()
    story.finish("send")
    story.drive()
    return story


def pause_holds_a_tool() -> Told:
    story = Told()
    story.tool("crunch", on_pause=OnPause.HOLD)
    story.pause()
    story.drive()
    story.resume(driven=True)
    story.drive()
    story.finish("crunch")
    story.complete()
    return story


def pause_aborts_an_idempotent_tool() -> Told:
    story = Told()
    story.tool("fetch", on_pause=OnPause.ABORT, idempotent=True)
    story.pause()
    story.drive()
    story.resume(driven=False)
    story.take_over()
    story.tool("fetch", attempt=2, on_pause=OnPause.ABORT, idempotent=True)
    story.finish("fetch")
    story.complete()
    return story


def pause_twice() -> Told:
    story = Told()
    story.tool("send")
    story.pause()
    story.pause(by="bob")
    story.finish("send")
    story.drive()
    return story


def pause_in_the_queue() -> Told:
    story = Told(driven=False)
    story.pause()
    story.drive()
    story.resume("only Q3", driven=False)
    story.take_over()
    story.drive()
    return story


# -- redirect


def redirect_now() -> Told:
    story = Told()
    story.did("lock")
    story.tool("draft", effect=True)
    story.redirect("only Q3", reason="too much")
    story.later(0.125)
    story.drive()
    story.model("c3", delivers=True)
    story.finish("c3")
    story.drive()
    story.complete()
    return story


def redirect_at_the_next_step() -> Told:
    story = Told()
    story.tool("send", effect=True)
    story.redirect("then stop", when=When.NEXT_STEP)
    story.drive()
    story.finish("send")
    story.model("c2", delivers=True)
    story.drive()
    story.finish("c2")
    story.complete()
    return story


def redirect_is_superseded() -> Told:
    story = Told()
    story.tool("send")
    story.redirect("first")
    story.redirect("second")
    story.cancel()
    story.drive()
    return story


# -- cancel


def _cancelled(undo: Undo) -> Told:
    story = Told()
    story.did("lock", "draft")
    story.did("letter", undo=False)
    story.append(EffectSettled(id="kept", at=story.at, effect="lock", why="the author says so"))
    story.tool("send", effect=True)
    story.cancel(undo, reason="wrong direction")
    story.later(0.5)
    story.drive()
    return story


def cancel_undo_open() -> Told:
    return _cancelled(Undo.OPEN)


def cancel_undo_all() -> Told:
    return _cancelled(Undo.ALL)


def cancel_undo_none() -> Told:
    return _cancelled(Undo.NONE)


def cancel_with_an_undo_that_fails() -> Told:
    story = Told()
    story.did("draft", "lock")
    story.cancel()
    story.undo("lock")
    story.finish("undo:lock", Outcome.FAILED, error="KeyError")
    story.leave("lock")
    story.drive()
    story.retry_undo("lock")
    story.drive()
    return story


def cancel_in_the_queue() -> Told:
    story = Told(driven=False)
    story.cancel()
    story.take_over()
    story.drive()
    return story


def reason_afterwards() -> Told:
    story = Told()
    story.cancel()
    story.drive()
    story.append(ReasonAdded(id="why", at=story.at, reason="wrong_direction", by="ann", note="it wrote to all"))
    return story


# -- approvals


def _asked(blocks: bool = True) -> Told:
    story = Told()
    story.request("pay", blocks=blocks)
    story.later(3)
    return story


def approval_granted() -> Told:
    story = _asked()
    story.approve("pay", reason="as agreed")
    story.tool("pay", effect=True, undo=False)
    story.finish("pay")
    story.complete()
    return story


def approval_denied() -> Told:
    story = _asked()
    story.deny("pay", reason="over budget")
    story.complete()
    return story


def approval_queued() -> Told:
    story = _asked(blocks=False)
    story.model("c2")
    story.finish("c2")
    story.approve("pay")
    story.tool("pay", effect=True, undo=False)
    story.finish("pay")
    story.complete()
    return story


def approval_withdrawn() -> Told:
    story = _asked()
    story.cancel()
    story.drive()
    return story


# -- doubt


def _doubted(answer: Answer) -> Told:
    story = Told()
    story.crashes_in("send")
    story.later(2)
    story.append(CheckAsked(id="ask", at=story.at, call="send", by="ann"))
    story.append(CallChecked(id="check", at=story.at, call="send", note="the outbox does not answer"))
    story.resolve("send", answer)
    story.drive()
    return story


def doubt_happened() -> Told:
    return _doubted(Answer.HAPPENED)


def doubt_did_not_happen() -> Told:
    story = _doubted(Answer.DID_NOT_HAPPEN)
    story.tool("send", effect=True, attempt=2)
    story.finish("send")
    story.complete()
    return story


def doubt_undo() -> Told:
    return _doubted(Answer.UNDO)


def doubt_about_an_idempotent_tool() -> Told:
    story = Told()
    story.crashes_in("fetch", idempotent=True)
    story.tool("fetch", effect=True, idempotent=True, attempt=2)
    story.finish("fetch")
    story.complete()
    return story


def doubt_answered_by_its_owner() -> Told:
    story = Told()
    story.crashes_in("send", owner_dead=False)
    story.cancel()
    story.answers("send", Outcome.COMPLETED, epoch=1)
    story.drive()
    return story


def doubt_outlives_its_run() -> Told:
    story = Told()
    story.crashes_in("send", owner_dead=False)
    story.cancel()
    story.later(1000)
    story.drive()
    events_of(story.resolve("send", Answer.HAPPENED))
    return story


# -- halt, abort, ask


def halt() -> Told:
    story = Told()
    story.did("draft")
    story.tool("send", effect=True)
    story.halt(reason="enough")
    return story


def abort_one_call() -> Told:
    story = Told()
    story.tool("fetch")
    story.tool("send", effect=True)
    story.abort("send")
    story.drive()
    story.finish("fetch")
    story.complete()
    return story


def side_question() -> Told:
    story = Told()
    story.tool("crunch")
    story.ask("how far are you?", id="q1")
    story.drive(until=AnswerQuestion)
    story.drive(until=Settle)
    story.settle(answer="half way")
    story.finish("crunch")
    story.complete()
    return story


# -- caps


def cap_tripped_and_granted_again() -> Told:
    story = Told(stop_when=ToolCalls(1))
    story.did("one", effect=False)
    story.trip(refusal_of(story.tool("two")))
    story.drive()
    story.resume(driven=True)
    story.drive()
    story.did("two", effect=False)
    return story


def cap_cancels() -> Told:
    story = Told(stop_when=Turns(1, then=Then.CANCEL) | Tokens(10_000))
    story.did("draft")
    story.model("c2")
    story.finish("c2")
    story.trip(refusal_of(story.model("c3")))
    story.drive()
    return story


def every_cap() -> Told:
    caps = Turns(9) | ToolCalls(9) | Tokens(900) | Cost(2.5) | Elapsed(60) | Effects(4) | Repeats(3)
    story = Told(stop_when=caps)
    story.model("c1")
    story.later(2)
    story.finish("c1", usage=Usage(input_tokens=100, output_tokens=20, cost_usd=0.5))
    story.did("draft")
    return story


# -- sub-runs


def sub_run() -> Told:
    story = Told(run="r-parent")
    story.tool("r-parent.c1", kind=CallKind.RUN, name="worker", effect=False)
    story.cancel()
    story.drive()
    return story


def taken_over_in_every_status() -> Told:
    story = Told()
    story.did("draft")
    story.pause(resumes_itself=True)
    story.drive()
    story.take_over(host="host", pid=7)
    story.resume(by="checkrein", driven=True)
    story.drive()
    story.tool("send", effect=True)
    story.cancel()
    story.take_over(owner_dead=True)
    story.drive()
    return story


STORIES: Final[Mapping[str, Callable[[], Told]]] = {
    tell.__name__: tell
    for tell in (
        completes, fails, tool_fails, steps_and_plan, noted,
        pause_and_resume, pause_waits_for_a_tool, pause_holds_a_tool, pause_aborts_an_idempotent_tool, pause_twice,
        pause_in_the_queue, redirect_now, redirect_at_the_next_step, redirect_is_superseded,
        cancel_undo_open, cancel_undo_all, cancel_undo_none, cancel_with_an_undo_that_fails, cancel_in_the_queue,
        reason_afterwards, approval_granted, approval_denied, approval_queued, approval_withdrawn,
        doubt_happened, doubt_did_not_happen, doubt_undo, doubt_about_an_idempotent_tool, doubt_answered_by_its_owner,
        doubt_outlives_its_run, halt, abort_one_call, side_question,
        cap_tripped_and_granted_again, cap_cancels, every_cap, sub_run, taken_over_in_every_status,
    )
}  # fmt: skip
"""By name. Their ids and times are fixed, so that every run of them gives the same bytes."""
