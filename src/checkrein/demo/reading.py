"""What a history says: what was asked for, what was done, and what no longer holds.

The demo's model remembers nothing. It reads this off every request anew, so it goes on at the right place after a
pause, in another process, and in the next run of a thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from checkrein.demo.data import COUNTRIES
from checkrein.models.history import SENTENCES, Fate
from checkrein.models.messages import Assistant, Message, Note, Request, ToolResult, User

PLAN: Final = "plan"


class End(Enum):
    """How a use of a tool ended, as the model was told."""

    DONE = "done"
    UNDONE = "undone"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class Use:
    """One use of a tool."""

    name: str
    arguments: dict[str, Any]
    content: str
    end: End

    @property
    def result(self) -> Any:
        """What it answered: as JSON where it is some, else as text."""
        try:
            return msgspec.json.decode(self.content)
        except msgspec.DecodeError:
            return self.content


@dataclass(frozen=True)
class Wish:
    """What people have asked for, all that they said taken together; the later word counts."""

    country: str | None = None
    quarter: str | None = None
    mail: bool = False
    stop: bool = False

    @property
    def scope(self) -> dict[str, str]:
        """As arguments of a tool."""
        wanted = {"country": self.country, "quarter": self.quarter}
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def whom(self) -> str:
        country = f"customers in {self.country}" if self.country else "customers"
        return f"{country} whose contract ends in {self.quarter}" if self.quarter else country


class Seen:
    """A request, read."""

    def __init__(self, request: Request) -> None:
        messages = request.messages
        begins = _last_run(messages)
        said = [message.text for message in messages if isinstance(message, User)]
        self.last: Message = messages[-1]
        self.may_use: Final = {tool.name for tool in request.tools}
        self.is_first = len(said) <= 1
        self.word = said[-1] if said else ""
        """What a person said last."""
        self.wish = Wish()
        for text in said:
            self.wish = hear(text, self.wish)
        self.uses = _uses(messages)
        since = max((place for place, message in enumerate(messages) if isinstance(message, User)), default=0)
        self.since_word = _uses(messages[since:])
        self.step = max(_steps(messages[begins:]), default=1)
        """The latest step of the plan that was begun in this run."""

    def done(self, name: str) -> Use | None:
        """The latest use of a tool, if what it did still stands."""
        latest = self.latest(name)
        return latest if latest is not None and latest.end is End.DONE else None

    def done_for(self, name: str, wish: Wish) -> Use | None:
        """The latest use of a tool that stands and was about the customers wished for."""
        use = self.done(name)
        if use is None or any(use.arguments.get(key) != getattr(wish, key) for key in ("country", "quarter")):
            return None
        return use

    def latest(self, name: str) -> Use | None:
        return next((use for use in reversed(self.uses) if use.name == name), None)

    def lock(self) -> str | None:
        """The lock that is held, if one is."""
        place = {use.name: at for at, use in enumerate(self.uses)}
        taken = self.done("take_lock")
        is_held = taken is not None and place["take_lock"] > place.get("unlock", -1)
        return taken.content if taken is not None and is_held else None


_QUARTER: Final = re.compile(r"\bQ([1-4])\b", re.IGNORECASE)
_ALL: Final = re.compile(r"\b(all|every|everybody|everyone)\b.*\b(customers?|countr|quarters?)", re.IGNORECASE)
_NO_MAIL: Final = re.compile(r"\b(do not|don't|without|no)\b[^.]*\b(send|e-?mail)", re.IGNORECASE)
_MAIL: Final = re.compile(r"\b(send|e-?mail)\b", re.IGNORECASE)
_STOP: Final = re.compile(r"\b(stop|wrap up|finish now|enough)\b", re.IGNORECASE)


_GO_ON: Final = re.compile(r"\b(continue|go on|carry on|resume|proceed|again)\b", re.IGNORECASE)


def is_understood(text: str) -> bool:
    """Whether this model can do anything with `text`. It is a script, and says so when it cannot."""
    return hear(text, Wish()) != Wish() or any(found.search(text) for found in (_ALL, _NO_MAIL, _GO_ON))


def hear(text: str, before: Wish) -> Wish:
    """What is wished for after `text`."""
    country = next((name for name in COUNTRIES if re.search(rf"\b{name}\b", text, re.IGNORECASE)), before.country)
    quarter = f"Q{found[1]}" if (found := _QUARTER.search(text)) else before.quarter
    if _ALL.search(text):
        country = quarter = None
    mail = before.mail
    if _NO_MAIL.search(text):
        mail = False
    elif _MAIL.search(text):
        mail = True
    return Wish(country, quarter, mail, stop=bool(_STOP.search(text)))


def _uses(messages: tuple[Message, ...]) -> list[Use]:
    """Every use of a tool that has a result, in order. The plan is no tool in this sense."""
    asked: dict[str, dict[str, Any]] = {}
    uses = []
    for message in messages:
        if isinstance(message, Assistant):
            asked |= {call.id: _object(bytes(call.arguments)) for call in message.calls}
        elif isinstance(message, ToolResult) and message.name != PLAN:
            uses.append(Use(message.name, asked.get(message.call, {}), message.content, _end(message)))
    return uses


def _end(result: ToolResult) -> End:
    if result.content.endswith(SENTENCES[Fate.UNDONE]):
        return End.UNDONE
    if result.interrupted:
        return End.INTERRUPTED
    return End.FAILED if result.is_error else End.DONE


def _steps(messages: tuple[Message, ...]) -> list[int]:
    calls = [call for message in messages if isinstance(message, Assistant) for call in message.calls]
    return [int(_object(bytes(call.arguments)).get("step") or 1) for call in calls if call.name == PLAN]


def _last_run(messages: tuple[Message, ...]) -> int:
    """Where the messages of the latest run begin: after an answer that asked for nothing more, or after a stop."""
    begins = 0
    for place, message in enumerate(messages):
        is_answer = isinstance(message, Assistant) and not message.calls and not message.interrupted
        is_stop = isinstance(message, Note) and ("stopped this run" in message.text or "run ended" in message.text)
        if is_answer or is_stop:
            begins = place + 1
    return begins


def _object(body: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(body)
    return value if isinstance(value, dict) else {}
