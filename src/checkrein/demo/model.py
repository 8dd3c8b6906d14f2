"""The model of the demo: what it says and does next, decided from the request alone.

No provider is asked and no key is needed. It goes through the four steps of its plan, takes an instruction as far as it
understands it, and says so when it does not. All numbers and names in what it says come from the results of the tools.

What a history says: what was asked for, what was done, and what no longer holds.

The demo's model remembers nothing. It reads this off every request anew, so it goes on at the right place after a
pause, in another process, and in the next run of a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from checkrein.demo.data import COUNTRIES
from checkrein.models.history import SENTENCES, Fate
from checkrein.models.messages import Assistant, Message, Note, Request, ToolResult, User
from checkrein.models.scripted import ScriptedModel, Turn

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


STEPS: Final = ("Fetch customer list", "Join against MRR table", "Score churn risk", "Write summary memo")
WORDS_PER_SECOND: Final = 20
"""At pace 1."""
TEAM: Final = "account-team@example.com"

Said = tuple[str, dict[str, Any]]
"""A sentence, and the arguments of the tool that goes with it."""


def churn_model(data: Path, pace: float) -> ScriptedModel:
    """The model, for the data set in `data`. At pace 0 it does not wait between words."""
    speed = WORDS_PER_SECOND / pace if pace else None
    return ScriptedModel(lambda request: think(request, data, pace), tokens_per_second=speed, name="scripted:churn")


def think(request: Request, data: Path, pace: float) -> Turn:
    """The next turn."""
    seen = Seen(request)
    if not seen.may_use:
        return Turn(_answer(seen))
    opening = _opening(seen)
    move = next((move for move in MOVES if move.is_due(seen)), None)
    if move is None:
        return Turn(opening + _result(seen))
    text, arguments = move.say(seen)
    call = (move.tool, {"data": str(data), **arguments} | ({"pace": pace} if move.is_slow else {}))
    return Turn(opening + text, calls=[*_plan(seen, move.step), call])


def _plan(seen: Seen, step: int) -> list[tuple[str, dict[str, Any]]]:
    """Tell whoever watches that a step begins. Going back to an earlier one is not announced."""
    return [(PLAN, {"step": step})] if PLAN in seen.may_use and step > seen.step else []


# -- what is done, and in which order


@dataclass(frozen=True)
class Move:
    """One use of a tool, when it is due, and what is said with it."""

    step: int
    tool: str
    is_missing: Callable[[Seen], bool]
    say: Callable[[Seen], Said]
    is_slow: bool = False

    def is_due(self, seen: Seen) -> bool:
        is_over = seen.wish.stop or _trouble(seen) is not None
        return (self.tool == "unlock" or not is_over) and self.is_missing(seen)


def _no_scores(seen: Seen) -> bool:
    return seen.done_for("score_churn", seen.wish) is None


def _may_send(seen: Seen) -> bool:
    latest = seen.latest("send_email")
    return seen.wish.mail and (latest is None or latest.end in (End.UNDONE, End.INTERRUPTED))


def _say_fetch(seen: Seen) -> Said:
    return "I begin with the customer list. ", {}


def _say_lock(seen: Seen) -> Said:
    return "Before I read revenue I lock the table, so that the numbers hold still. ", {}


def _say_join(seen: Seen) -> Said:
    return f"Now I join {_fetched(seen)} customers against the MRR table. ", {}


def _say_draft(seen: Seen) -> Said:
    joined = _result_of(seen, "join_mrr")
    months, first, last = joined["months"], _money(joined["first"]), _money(joined["last"])
    text = f"In {months} months revenue went from {first} to {last} a month. I begin a draft to the account team. "
    return text, {"to": TEAM, "subject": "Customers who may leave next quarter"}


def _say_score(seen: Seen) -> Said:
    return f"Now the long part: I score {seen.wish.whom}, one by one. ", seen.wish.scope


def _say_memo(seen: Seen) -> Said:
    scores = _result_of(seen, "score_churn")
    first = scores["top"][:3]
    advice = [f"Call {one['name']} ({one['why']})." for one in first] or ["Nothing out of the ordinary."]
    arguments = {"summary": _summary(seen), "customers": [one["id"] for one in scores["top"]], "advice": advice}
    return "The scores are in. I write the memo. ", {**arguments, **seen.wish.scope}


def _say_mail(seen: Seen) -> Said:
    draft = seen.done("create_draft")
    given = {"to": TEAM, "draft": draft.content if draft else "", "text": _summary(seen)}
    return "I send the draft to the account team. ", given


def _say_unlock(seen: Seen) -> Said:
    return "The revenue table can be let go. ", {"lock": seen.lock()}


# fmt: off
MOVES: Final = (
    Move(1, "fetch_customers", lambda seen: seen.done("fetch_customers") is None, _say_fetch, is_slow=True),
    Move(2, "take_lock",       lambda seen: seen.lock() is None and _no_scores(seen), _say_lock),
    Move(2, "join_mrr",        lambda seen: seen.done("join_mrr") is None, _say_join, is_slow=True),
    Move(3, "create_draft",    lambda seen: seen.done("create_draft") is None, _say_draft),
    Move(3, "score_churn",     _no_scores, _say_score, is_slow=True),
    Move(4, "write_memo",      lambda seen: seen.done_for("write_memo", seen.wish) is None, _say_memo),
    Move(4, "send_email",      _may_send, _say_mail),
    Move(4, "unlock",          lambda seen: seen.lock() is not None, _say_unlock),
)
# fmt: on


def _trouble(seen: Seen) -> Use | None:
    """A tool that failed, or was stopped twice, since a person spoke last. It is not tried again unasked."""
    for use in seen.since_word:
        stopped = [one for one in seen.since_word if one.name == use.name and one.end is End.INTERRUPTED]
        if (use.end is End.FAILED and use.name != "send_email") or len(stopped) > 1:
            return use
    return None


# -- what is said


def _opening(seen: Seen) -> str:
    """A word about what a person has just said."""
    if seen.is_first or not isinstance(seen.last, User):
        return ""
    undone = [name for name in ("create_draft", "take_lock") if (use := seen.latest(name)) and use.end is End.UNDONE]
    again = f"What was undone ({', '.join(undone)}) I do again. " if undone and not seen.wish.stop else ""
    if not is_understood(seen.word):
        known = "a country, a quarter, “send it” and “summarise and stop”"
        return f"You said: “{seen.word}” I am a script and understand only {known}, so I go on as before. {again}"
    if seen.wish.stop:
        return "I stop here and sum up. "
    if seen.wish.scope and _no_scores(seen):
        return f"Understood: only {seen.wish.whom}. What is finished stays. {again}"
    return f"Understood: “{seen.word}” {again}"


def _result(seen: Seen) -> str:
    """The last word of a run."""
    trouble = _trouble(seen)
    if trouble is not None and not seen.wish.stop:
        what = "was stopped" if trouble.end is End.INTERRUPTED else f"did not work ({trouble.content})"
        return f"{trouble.name} {what}, so I end here. Tell me to go on and I try again. {_so_far(seen)}"
    if seen.done_for("write_memo", seen.wish) is None:
        return _so_far(seen)
    mail = seen.latest("send_email")
    if mail is not None and mail.end is End.DONE:
        about_mail = "The e-mail to the account team is sent."
    elif mail is not None and mail.end is End.FAILED:
        about_mail = "You declined the e-mail, so it stays a draft."
    else:
        about_mail = "A draft to the account team is in the outbox; say “send it” and I send it."
    return f"{_summary(seen)} The memo is in memo.md. {about_mail}"


def _answer(seen: Seen) -> str:
    """An answer without tools: to a side question, or as the last word when the run has had its allowance."""
    scores = seen.done_for("score_churn", seen.wish)
    return _summary(seen) if scores is not None else f"{_so_far(seen)} Who will leave I cannot say before that."


def _summary(seen: Seen) -> str:
    scores = _result_of(seen, "score_churn")
    whom = seen.wish.whom
    if not scores["top"]:
        return f"Of {scores['scored']} {whom}, none looks likely to leave next quarter."
    names = ", ".join(one["name"] for one in scores["top"][:3])
    return (
        f"Of {scores['scored']} {whom}, {scores['at_risk']} look likely to leave next quarter; they pay "
        f"{_money(scores['mrr_at_risk'])} a month. Talk first to {names}."
    )


def _so_far(seen: Seen) -> str:
    """What is finished and what is not, in plain words."""
    done = [
        f"fetched {_fetched(seen)} customers" if seen.done("fetch_customers") else "",
        "joined them with their revenue" if seen.done("join_mrr") else "",
        "begun a draft" if seen.done("create_draft") else "",
    ]
    words = [word for word in done if word]
    listed = ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1] if words else "not begun"
    scored = f"scored {seen.wish.whom}"
    return f"So far I have {listed}. I have {'' if not _no_scores(seen) else 'not yet '}{scored}."


def _result_of(seen: Seen, name: str) -> Any:
    use = seen.done(name)
    assert use is not None, f"{name} comes earlier in the list of moves"
    return use.result


def _fetched(seen: Seen) -> int:
    return int(_result_of(seen, "fetch_customers")["customers"])


def _money(amount: int) -> str:
    return f"{amount:,} €"
