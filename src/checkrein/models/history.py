"""Histories that a provider accepts, made from what a thread's runs recorded. Pure functions over messages.

A run that was stopped, crashed, denied or undone leaves tool calls without results, results without calls and half
sentences. Every provider refuses such a history, and forgetting the calls would be a lie: the model might do them
again. So what is missing is filled in with what is known, in words that are true.

What the strictest of the supported wires ask for (`check`), and what is done about it (`repair`):

    the first message is the user's             a note goes before it
    no message is empty                         blank ones are left out
    a tool call has one result, right after it  moved there, or made up from the call's fate
    a tool result has its call                  an orphan is left out, and so is a second result
    ids of tool calls differ and are plain      the later, or the odd one, gets another id, and so does its result
    names of tools are plain                    odd characters become _
    arguments are an object                     anything else is wrapped in one
    a failed result says something              a sentence that says it did not
    a result is not just white space            nothing at all
    an assistant at the end ends in no blank    trimmed

Several user messages in a row are taken by both wires and left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from checkrein.core.events import Json
from checkrein.errors import ModelRefusedRequest
from checkrein.models.base import is_json, is_object, message_size
from checkrein.models.messages import (
    NO_HISTORY,
    Assistant,
    Message,
    Note,
    ToolCall,
    ToolResult,
    User,
    as_json,
    hash_after,
)


class Fate(StrEnum):
    """What became of a tool call that has no result of its own, or whose result no longer holds."""

    INTERRUPTED = "interrupted"
    IN_DOUBT = "in_doubt"
    UNDONE = "undone"
    DENIED = "denied"
    NOT_BEGUN = "not_begun"


# fmt: off
SENTENCES: Final[Mapping[Fate, str]] = MappingProxyType({
    Fate.INTERRUPTED: "Interrupted before it finished; it may have partly happened.",
    Fate.IN_DOUBT:    "It is not known whether this happened.",
    Fate.UNDONE:      "This was done and then undone.",
    Fate.DENIED:      "A person declined this.",
    Fate.NOT_BEGUN:   "Not begun: the run was stopped first.",
})
# fmt: on

INTERRUPTED_REPLY: Final = "Your message above was interrupted before it was complete."
RESULT_LEFT_OUT: Final = "This result was left out to make room."
REST_LEFT_OUT: Final = "\n\n[The rest was left out to make room.]"
MESSAGES_LEFT_OUT: Final = "What you said and did before this was left out to make room."
NOTHING_SAID: Final = "Nothing has been said yet."
BEGINS_HERE: Final = "What was said before this is not shown."
NO_REASON: Final = "It failed and gave no reason."

_WRITTEN_HERE: Final = frozenset(SENTENCES.values())
_CUT_SHORT: Final = frozenset({Fate.INTERRUPTED, Fate.IN_DOUBT, Fate.NOT_BEGUN})

LONGEST_ID: Final = 40
LONGEST_NAME: Final = 64
_PLAIN_ID: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_ID}}}")
_PLAIN_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")

NO_FATES: Final[Mapping[str, Fate]] = MappingProxyType({})


def result_of(call: ToolCall, fate: Fate) -> ToolResult:
    """The result of a call that has none of its own, in words that are true."""
    return ToolResult(
        call=call.id,
        name=call.name,
        content=SENTENCES[fate],
        is_error=fate is not Fate.UNDONE,
        interrupted=fate in _CUT_SHORT,
    )


# -- making a history acceptable


class _Slot:
    """A tool call as it will be sent, and the result that was found for it."""

    __slots__ = ("call", "fate", "result")

    def __init__(self, call: ToolCall, fate: Fate | None) -> None:
        self.call = call
        self.fate = fate
        self.result: ToolResult | None = None


class _Said:
    """A message of the assistant with the results that belong to it."""

    __slots__ = ("message", "slots")

    def __init__(self, message: Assistant, slots: list[_Slot]) -> None:
        self.message = message
        self.slots = slots


def repair(
    messages: Sequence[Message], fates: Mapping[str, Fate] = NO_FATES, *, otherwise: Fate = Fate.INTERRUPTED
) -> tuple[Message, ...]:
    """`messages` as a provider accepts them: `check` passes on what is returned.

    `fates` says, by the id of a tool call, what became of it; a call without a result that is not in it had the fate
    `otherwise`. A recorded result is never replaced by a guess: a fate replaces only a sentence of this module, and
    `UNDONE` is added to a result that stands. Whatever a person said is kept, in order and unchanged. What is
    acceptable already comes back as it is, and to repair twice is to repair once.
    """
    return tuple(_with_ends(_repaired(messages, fates, otherwise, set())))


class Growing:
    """A history that grows at its end and is repaired as it grows: what was repaired once is not looked at again.

    What is added at a time must be whole: a reply together with the results of its calls.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = list(repair(messages))
        self._ids = {call.id for message in messages if isinstance(message, Assistant) for call in message.calls}
        self.hash = hash_after(NO_HISTORY, self._messages)
        self.size = sum(map(message_size, self._messages))
        """How many bytes a model has to read of it, about."""
        self.left_out = 0
        """How many messages were left out, or shortened, to make room."""

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Sequence[Message]) -> None:
        new = _repaired(messages, NO_FATES, Fate.INTERRUPTED, self._ids)
        self._messages += new
        self.hash = hash_after(self.hash, new)
        self.size += sum(map(message_size, new))

    def shorten(self) -> None:
        """Make it about half as long, as `shortened` does."""
        self._messages, count = shortened(self._messages)
        self.hash = hash_after(NO_HISTORY, self._messages)
        self.size = sum(map(message_size, self._messages))
        self.left_out += count

    def messages(self) -> tuple[Message, ...]:
        """All of it, as a provider accepts it."""
        last = self._messages[-1]
        if isinstance(last, Assistant) and last.text != last.text.rstrip():
            return (*self._messages[:-1], replace(last, text=last.text.rstrip()))
        return tuple(self._messages)

    def last_answers(self, count: int) -> list[str]:
        """The latest texts of the assistant, oldest first."""
        texts = (message.text for message in reversed(self._messages) if isinstance(message, Assistant))
        return list(islice(filter(None, texts), count))[::-1]


def shortened(messages: Sequence[Message]) -> tuple[list[Message], int]:
    """A history of about half the length, and how many of its messages were left out or shortened for it.

    The oldest results of tools go first; then what the assistant said and did, from the oldest on; then the ends of
    what the latest tools gave. What a person said is kept. It is as acceptable to a provider as it was.
    """
    kept = list(messages)
    excess = sum(map(message_size, kept)) // 2
    last = max((place for place, one in enumerate(kept) if isinstance(one, Assistant)), default=0)
    count = 0
    for place, message in enumerate(kept[:last]):
        if excess > 0 and isinstance(message, ToolResult) and len(message.content) > len(RESULT_LEFT_OUT):
            kept[place] = replace(message, content=RESULT_LEFT_OUT)
            excess -= message_size(message) - len(RESULT_LEFT_OUT)
            count += 1
    if excess > 0:
        kept, dropped, excess = _without_oldest(kept, last, excess)
        count += dropped
    for place, message in enumerate(kept):
        if excess > 0 and isinstance(message, ToolResult) and len(message.content) > 2 * len(REST_LEFT_OUT):
            keep = max(len(REST_LEFT_OUT), len(message.content) - excess - len(REST_LEFT_OUT))
            kept[place] = replace(message, content=message.content[:keep] + REST_LEFT_OUT)
            excess -= message_size(message) - message_size(kept[place])
            count += 1
    return kept, count


def _without_oldest(messages: list[Message], last: int, excess: int) -> tuple[list[Message], int, int]:
    """Leave out what the assistant said and did before its message at `last`, each with its results, oldest first."""
    kept: list[Message] = []
    place = count = 0
    while place < len(messages):
        message = messages[place]
        if place >= last or (excess <= 0 and not isinstance(message, ToolResult)):
            break
        if isinstance(message, User):
            kept.append(message)
        else:
            excess -= message_size(message)
            count += 1
        place += 1
    note: list[Message] = [Note(MESSAGES_LEFT_OUT)] if count else []
    return [*kept, *note, *messages[place:]], count, excess


def _repaired(messages: Sequence[Message], fates: Mapping[str, Fate], otherwise: Fate, ids: set[str]) -> list[Message]:
    said = _read(messages, fates, ids)
    repaired: list[Message] = []
    for place, item in enumerate(said):
        if not isinstance(item, _Said):
            repaired.append(item)
            continue
        repaired.append(item.message)
        repaired += [_result(slot, otherwise) for slot in item.slots]
        if item.message.interrupted and said[place + 1 : place + 2] != [Note(INTERRUPTED_REPLY)]:
            repaired.append(Note(INTERRUPTED_REPLY))
    return repaired


def _read(messages: Sequence[Message], fates: Mapping[str, Fate], ids: set[str]) -> list[Message | _Said]:
    """The messages that have something to say, with every result at the call it belongs to."""
    said: list[Message | _Said] = []
    latest: dict[str, list[_Slot]] = {}
    for message in messages:
        if isinstance(message, ToolResult):
            _place(latest.get(message.call, []), message)
        elif not isinstance(message, Assistant):
            if message.text.strip():
                said.append(message)
        elif message.calls or message.text.strip():
            slots = [_Slot(_acceptable(call, ids, fates), fates.get(call.id)) for call in message.calls]
            said.append(_Said(_with_calls(message, slots), slots))
            # An id that comes again belongs to the newer message from here on.
            latest |= {call.id: [] for call in message.calls}
            for call, slot in zip(message.calls, slots, strict=True):
                latest[call.id].append(slot)
    return said


def _place(slots: list[_Slot], result: ToolResult) -> None:
    """Give `result` to the first call that lacks one. What really came outranks what was said for want of it."""
    for slot in slots:
        if slot.result is None:
            slot.result = result
            return
    for slot in slots:
        if slot.result is not None and slot.result.interrupted and not result.interrupted:
            slot.result = result
            return


def _with_calls(message: Assistant, slots: list[_Slot]) -> Assistant:
    calls = tuple(slot.call for slot in slots)
    text = message.text if message.text.strip() else ""
    if calls == message.calls and text == message.text:
        return message
    return replace(message, calls=calls, text=text)


def _result(slot: _Slot, otherwise: Fate) -> ToolResult:
    call, result, fate = slot.call, slot.result, slot.fate
    if result is None:
        return result_of(call, fate or otherwise)
    if fate is not None and result.content in _WRITTEN_HERE and result.content != SENTENCES[fate]:
        return result_of(call, fate)
    content = result.content if result.content.strip() else (NO_REASON if result.is_error else "")
    if fate is Fate.UNDONE and not content.endswith(SENTENCES[fate]):
        content = f"{content}\n\n{SENTENCES[fate]}" if content else SENTENCES[fate]
    if (content, call.id, call.name) == (result.content, result.call, result.name):
        return result
    return replace(result, call=call.id, name=call.name, content=content)


def _with_ends(messages: list[Message]) -> list[Message]:
    if not messages:
        return [Note(NOTHING_SAID)]
    first, last = messages[0], messages[-1]
    if isinstance(last, Assistant) and last.text != last.text.rstrip():
        messages[-1] = replace(last, text=last.text.rstrip())
    return [Note(BEGINS_HERE), *messages] if isinstance(first, Assistant) else messages


# -- tool calls that any wire takes


def _acceptable(call: ToolCall, ids: set[str], fates: Mapping[str, Fate]) -> ToolCall:
    """`call` with an id that is not in `ids`, where it is entered, and that is not another call's in `fates`."""
    wanted = call.id if _PLAIN_ID.fullmatch(call.id) else f"call_{_digest(call.id)}"
    taken, again = wanted, 2
    while taken in ids or (taken != call.id and taken in fates):
        ending = f"-{again}"
        taken, again = wanted[: LONGEST_ID - len(ending)] + ending, again + 1
    ids.add(taken)
    name = call.name if _PLAIN_NAME.fullmatch(call.name) else _ODD.sub("_", call.name)[:LONGEST_NAME] or "_"
    arguments = call.arguments if is_object(bytes(call.arguments)) else _wrapped(call.arguments)
    if (taken, name) == (call.id, call.name) and arguments is call.arguments:
        return call
    return ToolCall(id=taken, name=name, arguments=arguments)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _wrapped(arguments: Json) -> Json:
    """What the model wrote where an object was asked for, in an object that says so."""
    body = bytes(arguments)
    return as_json({"invalid_arguments": arguments if is_json(body) else body.decode("utf-8", "replace")})


# -- what a strict provider would say


def check(messages: Sequence[Message]) -> None:
    """Raise `ModelRefusedRequest`, with the `position` of the first message at fault, where a provider would refuse.

    A history need not end with the user: that is a matter of the request, not of the history.
    """
    if not messages:
        raise _refused(0, "there are no messages")
    if isinstance(messages[0], Assistant | ToolResult):
        raise _refused(0, "the first message must be the user's")
    ids: set[str] = set()
    waiting: dict[str, str] = {}
    for position, message in enumerate(messages):
        if isinstance(message, ToolResult):
            _check_result(position, message, waiting)
            continue
        if waiting:
            raise _dangling(position, waiting)
        if isinstance(message, Assistant) and message.calls:
            waiting = _check_calls(position, message.calls, ids)
        elif not message.text.strip():
            raise _refused(position, "it is empty")
    if waiting:
        raise _dangling(len(messages), waiting)
    last = messages[-1]
    if isinstance(last, Assistant) and last.text != last.text.rstrip():
        raise _refused(len(messages) - 1, "the last message is the assistant's and ends with white space")


def _check_calls(position: int, calls: Sequence[ToolCall], ids: set[str]) -> dict[str, str]:
    """The name of each call by its id: those that wait for a result."""
    waiting: dict[str, str] = {}
    for call in calls:
        if call.id in ids:
            raise _refused(position, f"the id {call.id} of a call of {call.name} was used before")
        if not _PLAIN_ID.fullmatch(call.id):
            raise _refused(position, f"the id {call.id!r} of a call of {call.name} is not plain or too long")
        if not _PLAIN_NAME.fullmatch(call.name):
            raise _refused(position, f"{call.name!r} cannot be the name of a tool")
        if not is_object(bytes(call.arguments)):
            raise _refused(position, f"the arguments of call {call.id} of {call.name} are not an object")
        ids.add(call.id)
        waiting[call.id] = call.name
    return waiting


def _check_result(position: int, result: ToolResult, waiting: dict[str, str]) -> None:
    if waiting.pop(result.call, None) is None:
        raise _refused(position, f"the result of {result.name} answers no call just before it ({result.call})")
    if result.is_error and not result.content.strip():
        raise _refused(position, f"the failed result of {result.name} says nothing")
    if result.content and not result.content.strip():
        raise _refused(position, f"the result of {result.name} is nothing but white space")


def _dangling(position: int, waiting: Mapping[str, str]) -> ModelRefusedRequest:
    which = ", ".join(f"{call} of {name}" for call, name in waiting.items())
    return _refused(position, f"these tool calls have no result right after them: {which}")


def _refused(position: int, why: str) -> ModelRefusedRequest:
    return ModelRefusedRequest(
        f"A provider would refuse this history at message {position + 1}: {why}.",
        position=position,
        remedy="Repair the history before it is sent.",
    )
