"""Which of a program's requests belong to its main conversation, and what a person has said in it.

A program asks for titles, for summaries and on behalf of sub-agents beside its main conversation, and nothing in a
request says which it is. The main one is that of the first request that offers tools, or of the first at all while none
does. It is recognised by its tools and by how it begins, or what the model is told about itself: the one changes when a
program shortens its history, the other hardly ever.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from checkrein.gateway.wires.base import Body, Wire


class Look(NamedTuple):
    """What a request looks like."""

    tools: frozenset[str]
    system: str
    opening: str


class Said(msgspec.Struct, frozen=True):
    """What a person has said, and where: after the message `after`, and `half` of the answer to it."""

    after: str
    half: str
    instruction: str


class MainConversation:
    """The one that a person talks to."""

    def __init__(self) -> None:
        self._look: Look | None = None
        self._is_at_work = False
        """Its last answer has asked for tools, so a request that begins otherwise is that of a sub-agent."""
        self._said: list[Said] = []
        self.unsaid: list[str] = []
        """What has not reached the model yet."""

    def has(self, wire: Wire, body: Body) -> bool:
        """Whether a request belongs to it. The first one that may be it is."""
        look = look_of(wire, body)
        main = self._look
        if main is None or (look.tools and not main.tools):
            self._look = look
            return True
        if look.tools != main.tools:
            return False
        if look.opening == main.opening:
            return True
        return look.system == main.system and not self._is_at_work

    def asked(self) -> None:
        self._is_at_work = False

    def answered(self, *, with_calls: bool) -> None:
        self._is_at_work = with_calls

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
    spoken = [one for one in wire.messages(body) if one.get("role") in (None, "user")]
    opening = mark_of(spoken[0]) if spoken else ""
    return Look(wire.tools(body), _hash(wire.system(body)), opening)


def mark_of(message: Body) -> str:
    """The same for the same message, however it is marked for a cache."""
    return _hash(_plain(message))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in ("cache_control", "id", "status")}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _hash(value: object) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
