"""Which of a program's requests belong to its main conversation, and what a person has said in it.

A program asks for titles, for summaries and on behalf of sub-agents beside its main conversation, and nothing in a
request says which it is. The main one is that of the first request that offers tools; or, of a program that is not
known to offer any, of the first at all while none does. It is recognised by what the model is told about itself, which
is another for titles, summaries and most sub-agents, and by how it begins. The beginning changes when a program
shortens its history, but not while tools are at work: what begins otherwise then is a sub-agent. Tools prove little,
since programs offer more of them as they need them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from checkrein.gateway.wires.base import Body, Wire

SHARED: Final = 0.5
"""So much of what a model is told about itself stays the same in a conversation; a date or a list in it may change."""


class Look(NamedTuple):
    """What a request looks like."""

    tools: frozenset[str]
    system: frozenset[str]
    """The lines of what the model is told about itself."""
    opening: str
    """All that was said before the model first answered. What comes first may be the same in all conversations."""

    def is_told_alike(self, other: Look) -> bool:
        most = max(len(self.system), len(other.system))
        return len(self.system & other.system) >= SHARED * most


class Said(msgspec.Struct, frozen=True):
    """What a person has said, and where: after the message `after`, and `half` of the answer to it."""

    after: str
    half: str
    instruction: str


class MainConversation:
    """The one that a person talks to."""

    def __init__(self, *, offers_tools: bool = False) -> None:
        self._offers_tools = offers_tools
        """It is known to offer tools, so that what offers none is not it."""
        self._look: Look | None = None
        self._others: set[str] = set()
        """How conversations of sub-agents begin."""
        self.at_work_since: float | None = None
        """Its last answer has asked for tools, and was given then, as start times of processes are counted. Until it
        asks again, a request that begins otherwise is that of a sub-agent."""
        self._said: list[Said] = []
        self.unsaid: list[str] = []
        """What has not reached the model yet."""

    def has(self, wire: Wire, body: Body) -> bool:
        """Whether a request belongs to it. The first one that may be it is."""
        look = look_of(wire, body)
        main = self._look
        if not look.tools and (self._offers_tools or (main is not None and main.tools)):
            return False
        if main is None or (look.tools and not main.tools):
            self._look = look
            return True
        if look.opening in self._others or not look.is_told_alike(main):
            return False
        if look.opening != main.opening:
            if self.at_work_since is not None:
                self._others.add(look.opening)
                return False
            self._look = look
        return True

    def asked(self) -> None:
        self.at_work_since = None

    def answered(self, *, at_work_since: float | None) -> None:
        self.at_work_since = at_work_since

    def say(self, wire: Wire, messages: list[Body], half: str, instruction: str) -> None:
        """Remember what goes to the model after `messages` and `half` of its answer."""
        self._said.append(Said(mark_of(messages[-1]) if messages else "", half, instruction))

    def with_said(self, wire: Wire, messages: list[Body]) -> list[Body]:
        """`messages` with what a person has said in them, each at its place; the same list where nothing was said."""
        if not self._said:
            return messages
        marks = [mark_of(message) for message in messages]
        made: list[Body] = []
        left = list(messages)
        for place, mark in enumerate(marks):
            made.append(left[place])
            if mark in marks[place + 1 :]:
                continue  # the last of equal messages counts
            rest: Body | None = left[place + 1] if place + 1 < len(left) else None
            for said in (one for one in self._said if one.after == mark):
                rest = _insert(wire, made, rest, said)
            if place + 1 < len(left):
                left[place + 1] = rest if rest is not None else {}
        return [message for message in made if message]


def _insert(wire: Wire, made: list[Body], following: Body | None, said: Said) -> Body | None:
    """Add what was said to `made`; what is left of the answer that follows."""
    halves = wire.split(following, said.half) if following and said.half and wire.is_answer(following) else None
    if halves is not None:
        made.append(halves[0])
        following = halves[1]
    made.append(wire.user(said.instruction))
    return following


def look_of(wire: Wire, body: Body) -> Look:
    messages = wire.messages(body)
    answers = [place for place, message in enumerate(messages) if wire.is_answer(message)]
    before = messages[: answers[0]] if answers else messages
    spoken = [mark_of(one) for one in before if one.get("role") in (None, "user")]
    return Look(wire.tools(body), frozenset(_texts(wire.system(body))), _hash(spoken))


def mark_of(message: Body) -> str:
    """The same for the same message, however it is marked for a cache, and whether its text is in one part or not."""
    return _hash(_plain(message))


def _texts(value: Any) -> Iterator[str]:
    """The lines of all text in there."""
    if isinstance(value, str):
        yield from (line for one in value.splitlines() if (line := one.strip()))
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


_UNSAID: Final = frozenset({"cache_control", "id", "status", "internal_chat_message_metadata_passthrough"})
"""What a message has beside what is said in it, and what may differ when it is sent again."""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in _UNSAID}
    if not isinstance(value, list):
        return value
    parts = [_plain(one) for one in value]
    if parts and all(isinstance(one, dict) and one.keys() <= {"type", "text"} and "text" in one for one in parts):
        return "".join(str(one["text"]) for one in parts)
    return parts


def _hash(value: object) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
