"""Small things in words: times, values, lists of names.

A receipt in plain words: how fast it stopped, what became of what was running and of what it had done, what now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from checkrein.cli import output
from checkrein.core.enums import STOPS_OF_RUNS, EffectState, Outcome, Status, Verb
from checkrein.core.escape import one_line, printable
from checkrein.core.wording import (
    BEFORE_FIRST_TOKEN,
    EFFECT_HEADS,
    KEPT_TEXT,
    NO_UNDO,
    RECEIPT_HEADS,
    RECEIPT_PHRASES,
    milliseconds,
    plural,
    stopped_call,
)

if TYPE_CHECKING:
    from checkrein.control.control import Settling
    from checkrein.control.view import ApprovalView, CallView, DoubtView
    from checkrein.core.events import Origin
    from checkrein.core.receipts import ChangedEffect, Receipt, StoppedCall


def moment(at: float) -> str:
    """A time of day with its date, as it is here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def names(several: Iterable[str]) -> str:
    return ", ".join(one_line(name, 80) for name in several)


class Value(NamedTuple):
    """One argument as people read it."""

    name: str
    text: str
    hidden: int = 0
    """How many of its characters are not in `text`."""

    def shortened(self, longest: int) -> Value:
        cut = max(0, len(self.text) - longest)
        return self._replace(text=self.text[: len(self.text) - cut], hidden=self.hidden + cut)

    @property
    def more(self) -> str:
        """What is said of the part that is not shown; empty where all of it is."""
        return f"… ({plural(self.hidden, 'more character')})" if self.hidden else ""


def values_of(value: Any) -> list[Value]:
    """Arguments, each by itself; a text without its quotes, everything else as JSON."""
    named = value.items() if isinstance(value, dict) else [] if value is None else [("", value)]
    return [Value(one_line(str(name), 80), item if isinstance(item, str) else value_of(item)) for name, item in named]


def values_shown(asked: ApprovalView | CallView | DoubtView) -> list[Value]:
    """The arguments of a call as its view has them."""
    shown = getattr(asked, "given", None) or getattr(asked, "shown", None)
    if isinstance(shown, tuple) and shown:
        return [Value(one_line(one.name, 80), one.text, one.hidden) for one in shown]
    return values_of(asked.arguments)


MOST_ARGUMENTS: Final = 20
"""How many arguments stand on one line; the rest are counted."""


def arguments(value: Any, longest: int = 120) -> str:
    """Arguments as a call would have them; everything else as JSON.

    Each is shortened by itself, to `longest` characters, and says how much is hidden: none can push another out of
    sight.
    """
    if not isinstance(value, dict):
        return "" if value is None else _short(value_of(value), longest)
    named = [f"{one_line(str(name), 80)}={_short(value_of(item), longest)}" for name, item in value.items()]
    rest = len(named) - MOST_ARGUMENTS
    return ", ".join([*named[:MOST_ARGUMENTS], *([f"… {plural(rest, 'more argument')}"] if rest > 0 else [])])


def _short(text: str, longest: int) -> str:
    value = Value("", text).shortened(longest)
    return one_line(value.text) + value.more


_LONGEST_ARGUMENT: Final = 2000


def approval_lines(approval: ApprovalView, instead: Mapping[str, Any] | None = None) -> list[str]:
    """What a call is made with, one argument a line, each with its name and with how much of it is not shown.

    `instead` are the arguments that a person has put in the place of others.
    """
    shown = getattr(approval, "shown", ())
    values = {one.name: (one.text, one.hidden) for one in shown}
    if not values:
        values = {name: _shortened(value_of(item)) for name, item in _named(approval.arguments)}
    values |= {name: _shortened(value_of(item)) for name, item in _named(instead)}
    return [f"  {one_line(name, 80)}: {one_line(text)}{_hidden(hidden)}" for name, (text, hidden) in values.items()]


def _hidden(count: int) -> str:
    return f" ({plural(count, 'more character')})" if count else ""


def _named(value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else () if value is None else [("", value)]


def _shortened(text: str) -> tuple[str, int]:
    return text[:_LONGEST_ARGUMENT], max(0, len(text) - _LONGEST_ARGUMENT)


def value_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def result(value: Any, longest: int = 120) -> str:
    """What a call has brought, on one line."""
    if value is None:
        return ""
    return one_line(value if isinstance(value, str) else value_of(value), longest)


_OVER: Final = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.ABORTED, Outcome.KILLED})


def origin_lines(origin: Origin) -> list[str]:
    """What a fork goes on from, and what of that stands."""
    head = f"Goes on from run {origin.run} after step {origin.step}, {one_line(origin.title, 80)}: "
    lines = [head + f"{plural(origin.calls, 'call')} taken over, nothing done again."]
    for head, states in _STANDING.items():
        found = [one_line(one.what, 80) for one in origin.effects if one.now in states]
        if found:
            lines.append(f"{head} {'; '.join(found)}.")
    if origin.more_effects:
        lines.append(f"It has {plural(origin.more_effects, 'effect')} more.")
    return lines


_STANDING: Final = {
    "What it did stands, and stays its own:": (EffectState.OPEN, EffectState.SETTLED, EffectState.LEFT),
    "Undone there since:": (EffectState.UNDONE,),
    "Nobody knows whether it happened:": (EffectState.IN_DOUBT,),
}


def receipt_lines(receipt: Receipt) -> list[str]:
    """What happened, in as few lines as it takes, and under each loose end how to deal with it."""
    if receipt.verb is Verb.ASK:
        return printable(receipt.answer).split("\n") if receipt.answer else [RECEIPT_PHRASES["unanswered"]]
    return [" ".join(_head(receipt)), *_calls(receipt), *_effects(receipt), *_rest(receipt)]


def settling_lines(settling: Settling) -> list[str]:
    """A verb that is in force and not settled yet: what it waits for."""
    return [
        f"Accepted, and in force: run {settling.run} is {settling.status}. It still waits for {settling.waiting_for}.",
        f"Look again with: {output.command(f'watch {settling.run}')}",
    ]


def _head(receipt: Receipt) -> Iterator[str]:
    if receipt.superseded_by is not None:
        yield RECEIPT_PHRASES["superseded"]
        return
    yield RECEIPT_HEADS.get(receipt.verb, f"{receipt.verb.value}: done.")
    if receipt.verb not in STOPS_OF_RUNS:
        return
    took = receipt.timing_ms.calls_stopped
    if took is not None:
        yield f"Stopped in {milliseconds(took)}."
    elif any(call.now not in _OVER and call.now != "held" for call in receipt.calls):
        yield RECEIPT_PHRASES["unknown"]
    elif not receipt.calls:
        yield RECEIPT_PHRASES["nothing"]
    tokens = receipt.tokens_after_stop
    yield f"{plural(tokens, 'token')} after the stop."


def _calls(receipt: Receipt) -> Iterator[str]:
    if receipt.calls:
        yield f"In flight: {', '.join(_call(call) for call in receipt.calls)}."


def _call(call: StoppedCall) -> str:
    after = f" after {milliseconds(call.ms)}" if call.ms and call.now in _OVER else ""
    waited = f", waited for {call.waited_for}" if call.waited_for else ""
    left = f", still running: {one_line(', '.join(call.left), 200)}" if call.left else ""
    stopped = stopped_call(call.kind, call.now, before_first_token=call.before_first_token)
    unknown = f"; {BEFORE_FIRST_TOKEN[1]}" if call.before_first_token else ""
    return f"{one_line(call.name, 80)} ({stopped}{after}{waited}{left}{unknown})"


def _effects(receipt: Receipt) -> Iterator[str]:
    undone = [effect for effect in receipt.effects if effect.now is EffectState.UNDONE]
    if undone:
        yield f"{EFFECT_HEADS[EffectState.UNDONE]}: {names(effect.what for effect in undone)}."
    for effect in receipt.effects:
        if effect.now is EffectState.IN_DOUBT:
            yield f"{EFFECT_HEADS[effect.now]}: {_what(effect)}."
            answer = output.command(f"resolve {receipt.run} {effect.id} happened|did_not_happen|undo")
            yield f"  Say what happened: {answer}"
        elif effect.now is EffectState.LEFT:
            yield f"{EFFECT_HEADS[effect.now]}: {_what(effect)}."
            if effect.why != NO_UNDO:
                yield f"  Try its undo again: {output.command(f'retry-undo {receipt.run} {effect.id}')}"


def _what(effect: ChangedEffect) -> str:
    why = f" ({one_line(effect.why, 200)})" if effect.why else ""
    return f"{one_line(effect.what, 80)}{why}"


def _rest(receipt: Receipt) -> Iterator[str]:
    if receipt.partial.chars:
        yield KEPT_TEXT
    if receipt.delivered:
        yield RECEIPT_PHRASES["delivered"]
    elif receipt.delivered is False and receipt.status is not Status.QUEUED:
        yield RECEIPT_PHRASES["not_delivered"]


def halt_sentence(scope: str, name: str, by: str, reason: str, at: float) -> str:
    """What is halted, by whom, since when and why, in one line."""
    what = "everything" if scope == "all" else f"{scope} {name}"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "some time ago"
    return one_line(f"HALTED: {what}, by {by or 'somebody'} since {since}{f': {reason}' if reason else ''}")
