"""What the runs of a thread said and did, as messages: what the next run of the thread is told.

Everything comes from the journal, cancelled and crashed runs included. What was interrupted, is unknown or was undone
is said so; `models.history.repair` makes of it a history that every provider accepts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from checkrein.agents.plan import PLAN_TOOL
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, Decision, EffectState, Outcome, Status
from checkrein.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallResolved,
    CallReused,
    CallStarted,
    InstructionDelivered,
    RunCreated,
    RunFinished,
    VerbAccepted,
)
from checkrein.journal.base import Journal, Recorded
from checkrein.models.history import Fate, repair
from checkrein.models.messages import Assistant, Message, Note, RecordedReply, ToolCall, ToolResult, User

SEPARATOR = "/"
"""Between the place of a turn and the provider's id of a tool call: `turn:3/call_abc`."""
NOT_DONE = "This was not done."


def as_edited(content: str, arguments: bytes) -> str:
    """What a model is told of a call that a person had made with other arguments than it asked for."""
    return f"A person changed the arguments before they approved it; it was called with {arguments.decode()}\n{content}"


class Conversation:
    """The messages of one run, put together from its records."""

    def __init__(self, records: Iterable[Recorded], effects: Iterable[Effect] = ()) -> None:
        self.messages: list[Message] = []
        self.fates: dict[str, Fate] = {}
        self._tools: dict[str, tuple[str, str]] = {}
        self._edited: dict[str, bytes] = {}
        self._models: dict[str, int | None] = {}
        """Calls of a model, and where what its latest attempt said stands."""
        self._asked: list[ToolCall] = []
        self._instructions: dict[str, str] = {}
        for record in records:
            self._read(record)
        # The built-in plan needs no permit, so there is no call of it in the journal; nor of what had none.
        known = {call_id for call_id, _ in self._tools.values()}
        self.messages += [_unrecorded(call) for call in self._asked if call.id not in known]
        for effect in effects:
            if effect.id in self._tools and effect.state in _FATES:
                self.fates[self._tools[effect.id][0]] = _FATES[effect.state]

    def _read(self, record: Recorded) -> None:
        match record.event:
            case RunCreated(goal=goal, forked_from=origin) as created:
                self.messages.append(User(goal))
                if origin is not None and origin.words is not None:
                    self._instructions[created.id] = origin.words
            case CallReused() as reused:
                self._reused(reused)
            case VerbAccepted(id=accepted, instruction=str(text)):
                self._instructions[accepted] = text
            case InstructionDelivered(accepted=accepted):
                self.messages.append(User(self._instructions.get(accepted, "")))
            case CallStarted(kind=CallKind.MODEL, call=call):
                self._models.setdefault(call, None)
            case CallStarted(kind=CallKind.TOOL | CallKind.RUN, call=call, name=name, place=place):
                self._tools[call] = (place.rpartition(SEPARATOR)[2] or call, name)
                self.fates[self._tools[call][0]] = Fate.INTERRUPTED
            case ApprovalRequested(call=call, name=name, place=place):
                self._tools[call] = (place.rpartition(SEPARATOR)[2] or call, name)
                self.fates[self._tools[call][0]] = Fate.NOT_BEGUN
            case CallFinished() as finished:
                self._finished(finished)
            case CallResolved(call=call, answer=answer, result=result) if call in self._tools:
                if answer is Answer.HAPPENED:
                    self._result(call, _text(result))
            case ApprovalDecided(call=call, decision=Decision.DENIED) if call in self._tools:
                self.fates[self._tools[call][0]] = Fate.DENIED
            case ApprovalDecided(call=call, decision=Decision.REFUSED, note=why) if call in self._tools:
                self._result(call, why, is_error=True)
            case ApprovalDecided(call=call, arguments=edited) if edited is not None:
                self._edited[call] = bytes(edited)
            case RunFinished(status=Status.FAILED, error=error):
                self.messages.append(Note(f"The run ended with an error: {error}"))
            case RunFinished(status=Status.CANCELLED | Status.KILLED):
                self.messages.append(Note("A person stopped this run before it was done."))

    def _reused(self, event: CallReused) -> None:
        """A call of the origin of a fork is part of what was said there, like any other."""
        if event.carried is not None:
            self.messages.append(User(event.carried))
        if event.kind is CallKind.MODEL:
            self._models.setdefault(event.call, None)
        else:
            self._tools[event.call] = (event.place.rpartition(SEPARATOR)[2] or event.call, event.name)
            self.fates[self._tools[event.call][0]] = Fate.NOT_BEGUN
        if event.edited is not None:
            self._edited[event.call] = bytes(event.edited)
        if event.outcome is not None:
            self._finished(
                CallFinished(
                    id=event.id,
                    at=event.at,
                    call=event.call,
                    outcome=event.outcome,
                    result=event.result,
                    error=event.error,
                )
            )

    def _finished(self, event: CallFinished) -> None:
        if event.call in self._models:
            told = told_of(event.result)
            if told is not None and (event.outcome is Outcome.COMPLETED or told.message.text):
                self._said(event.call, told.message)
        elif event.call in self._tools:
            call_id, _ = self._tools[event.call]
            if event.outcome is Outcome.COMPLETED:
                self._result(event.call, _text(event.result))
            elif event.outcome is Outcome.FAILED:
                self._result(event.call, event.error or "It failed.", is_error=True)
            else:
                self.fates[call_id] = Fate.IN_DOUBT if event.outcome is Outcome.IN_DOUBT else Fate.INTERRUPTED

    def _said(self, call: str, message: Assistant) -> None:
        """An attempt takes the place of the one before it. What a person said in between comes before it."""
        earlier = self._models[call]
        if earlier is not None:
            replaced = self.messages[earlier]
            self.messages[earlier] = Note("")  # left out by whoever makes the history acceptable
            self._asked = [asked for asked in self._asked if asked not in getattr(replaced, "calls", ())]
        self._models[call] = len(self.messages)
        self.messages.append(message)
        self._asked += message.calls

    def _result(self, call: str, content: str, *, is_error: bool = False) -> None:
        call_id, name = self._tools[call]
        self.fates.pop(call_id, None)
        if call in self._edited:
            content = as_edited(content, self._edited[call])
        self.messages.append(ToolResult(call=call_id, name=name, content=content, is_error=is_error))


def _unrecorded(call: ToolCall) -> ToolResult:
    """What a call is answered with that never had a permit: one of the plan, or one that could not be made."""
    is_plan = call.name == PLAN_TOOL
    return ToolResult(call.id, call.name, "Noted." if is_plan else NOT_DONE, is_error=not is_plan)


_FATES = {EffectState.UNDONE: Fate.UNDONE, EffectState.IN_DOUBT: Fate.IN_DOUBT}


async def history_of_thread(journal: Journal, thread: str, owner: str, before: str) -> tuple[Message, ...]:
    """What the runs of `owner` on `thread` that were created before the run `before` said and did, oldest first.

    A fork has a thread of its own, which goes on from what came before its origin.
    """
    rows = await journal.runs(thread=thread, owner=owner, limit=1000)
    earlier = [row for row in reversed(rows) if row.parent is None]
    messages: list[Message] = []
    for row in earlier:
        messages += await _before_fork(journal, row.id, owner)
        if row.id == before:
            break
        conversation = Conversation(await journal.read(row.id), await journal.effects(row.id))
        # Each by itself: two runs may have given the same id to their calls, and the fate of one is not the other's.
        messages += repair(conversation.messages, conversation.fates)
    return repair(messages) if messages else ()


async def _before_fork(journal: Journal, run: str, owner: str) -> tuple[Message, ...]:
    """What was said before the run where a fork began; nothing, if `run` is no fork."""
    created = (await journal.read(run, limit=1))[0].event
    if not isinstance(created, RunCreated) or created.forked_from is None:
        return ()
    return await history_of_thread(journal, created.forked_from.thread, owner, created.forked_from.first)


def told_of(result: msgspec.Raw | bytes | None) -> RecordedReply | None:
    """A model's answer as it was recorded; None when there is none."""
    if result is None:
        return None
    try:
        return msgspec.json.decode(bytes(result), type=RecordedReply)
    except msgspec.MsgspecError:
        return None


def _text(result: msgspec.Raw | None) -> str:
    """A tool's result as a model reads it: plain text as it is, everything else as JSON."""
    if result is None:
        return ""
    value = msgspec.json.decode(bytes(result))
    return value if isinstance(value, str) else bytes(result).decode()
