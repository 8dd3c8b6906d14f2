"""When a run has done enough: small conditions, composed with `|` and `&` into one explicit contract.

    Turns(50) | ToolCalls(100) | Cost(usd=1) & Elapsed(minutes=10)

A condition is data. It is stored with the run, evaluated before every permit against what the run has used so far, and
never called: what it does when it trips (`then`) is carried out by whoever asked for the permit. Several tripped at
once do the strongest thing any of them asks for.

A resume after a condition tripped grants the same allowance again: `grants` counts, per condition, how often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from checkrein.core.enums import Then

RECENT_CALLS: Final = 32
"""How many fingerprints of calls a run remembers for `Repeats`."""

_STRENGTH: Final = {Then.PAUSE: 0, Then.FINISH: 1, Then.CANCEL: 2}


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was used. `cost_usd` is None where the price is not known; unknown plus known is unknown."""

    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    effects: int = 0
    estimated: bool = False
    """Some of it was estimated, because a provider had not said it when it was stopped."""
    cached_tokens: int = 0
    """Of the input: what the provider had read before, and charges less for."""
    cache_written_tokens: int = 0
    """Of the input: what the provider keeps for the next time, and charges more for."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        known = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            turns=self.turns + other.turns,
            model_calls=self.model_calls + other.model_calls,
            tool_calls=self.tool_calls + other.tool_calls,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
            effects=self.effects + other.effects,
            estimated=self.estimated or other.estimated,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_written_tokens=self.cache_written_tokens + other.cache_written_tokens,
        )


class Spent(msgspec.Struct, frozen=True, gc=False):
    """What conditions look at: what the run has used, how long it was at work, and its latest calls."""

    usage: Usage
    elapsed_seconds: float
    recent: tuple[str, ...] = ()


class Trip(msgspec.Struct, frozen=True, gc=False):
    """One condition that has had its allowance: its label, what was seen (None: not known), what was allowed."""

    condition: str
    observed: float | None
    allowed: float
    then: Then


class _Composable(msgspec.Struct, frozen=True, tag_field="when", omit_defaults=True):
    def __or__(self, other: Condition) -> AnyOf:
        return AnyOf((*_parts(self, AnyOf), *_parts(other, AnyOf)))

    def __and__(self, other: Condition) -> AllOf:
        return AllOf((*_parts(self, AllOf), *_parts(other, AllOf)))


class _Cap(_Composable, frozen=True, omit_defaults=True):
    """A number that may be reached and not passed. Each kind says what it allows and what it looks at."""

    def _allowed(self) -> float:
        raise AssertionError(self)

    def _observed(self, spent: Spent) -> float | None:
        raise AssertionError(self)

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self._allowed():.15g})"

    def standing(self, spent: Spent, grants: Mapping[str, int]) -> tuple[float | None, float]:
        """What is used (None: not known) and what is allowed, grants included."""
        granted = grants.get(self.label, 0) if grants else 0  # a label is put together, and this is asked often
        return self._observed(spent), self._allowed() * (1 + granted)

    def trips(self, spent: Spent, grants: Mapping[str, int]) -> tuple[Trip, ...]:
        observed, allowed = self.standing(spent, grants)
        then: Then = self.then  # type: ignore[attr-defined]
        return (Trip(self.label, observed, allowed, then),) if observed is None or observed >= allowed else ()


class _Count(_Cap, frozen=True, omit_defaults=True):
    n: int
    then: Then = Then.PAUSE

    def _allowed(self) -> float:
        return self.n


class Turns(_Count, tag="turns", frozen=True, omit_defaults=True):
    """At most so many rounds of a model call and the tool calls it asked for."""

    def _observed(self, spent: Spent) -> float:
        return spent.usage.turns


class ToolCalls(_Count, tag="tool_calls", frozen=True, omit_defaults=True):
    """At most so many tool calls."""

    def _observed(self, spent: Spent) -> float:
        return spent.usage.tool_calls


class Tokens(_Count, tag="tokens", frozen=True, omit_defaults=True):
    """At most so many tokens, in and out together."""

    def _observed(self, spent: Spent) -> float:
        return spent.usage.tokens


class Effects(_Count, tag="effects", frozen=True, omit_defaults=True):
    """At most so many calls that may change the world."""

    def _observed(self, spent: Spent) -> float:
        return spent.usage.effects


class Repeats(_Count, tag="repeats", frozen=True, omit_defaults=True):
    """The same call so many times in a row, or so many rounds of going back and forth between two.

    A grant does not allow more: the run forgets its latest calls, so that the count begins anew.
    """

    def __post_init__(self) -> None:
        if self.n > RECENT_CALLS // 2:
            raise ValueError(f"Repeats({self.n}) would never trip: at most {RECENT_CALLS // 2} rounds are remembered")

    def standing(self, spent: Spent, grants: Mapping[str, int]) -> tuple[float | None, float]:
        return super().standing(spent, {})

    def _observed(self, spent: Spent) -> float:
        return max(_rounds(spent.recent, 1), _rounds(spent.recent, 2))


class Cost(_Cap, tag="cost", frozen=True, omit_defaults=True):
    """At most so much money. A price that is not known trips at once: better to ask than never to trip.

    Whoever resumes after that has been told, and is not asked again.
    """

    usd: float
    then: Then = Then.PAUSE

    def _allowed(self) -> float:
        return self.usd

    def _observed(self, spent: Spent) -> float | None:
        return spent.usage.cost_usd

    def trips(self, spent: Spent, grants: Mapping[str, int]) -> tuple[Trip, ...]:
        is_accepted = spent.usage.cost_usd is None and self.label in grants
        return () if is_accepted else super().trips(spent, grants)


class Elapsed(_Cap, tag="elapsed", frozen=True, omit_defaults=True):
    """At most so long at work: time paused, queued or waiting does not count."""

    seconds: float = 0
    minutes: float = 0
    then: Then = Then.PAUSE

    def _allowed(self) -> float:
        return self.seconds + 60 * self.minutes

    def _observed(self, spent: Spent) -> float:
        return spent.elapsed_seconds


class AnyOf(_Composable, tag="any", frozen=True):
    """Trips as soon as one of its parts does."""

    parts: tuple[Condition, ...]

    @property
    def label(self) -> str:
        return " | ".join(part.label for part in self.parts)

    def trips(self, spent: Spent, grants: Mapping[str, int]) -> tuple[Trip, ...]:
        return tuple(trip for part in self.parts for trip in part.trips(spent, grants))


class AllOf(_Composable, tag="all", frozen=True):
    """Trips when every one of its parts does."""

    parts: tuple[Condition, ...]

    @property
    def label(self) -> str:
        return " & ".join(f"({part.label})" if isinstance(part, AnyOf) else part.label for part in self.parts)

    def trips(self, spent: Spent, grants: Mapping[str, int]) -> tuple[Trip, ...]:
        each = [part.trips(spent, grants) for part in self.parts]
        return tuple(trip for trips in each for trip in trips) if all(each) else ()


Condition = Turns | ToolCalls | Tokens | Cost | Elapsed | Effects | Repeats | AnyOf | AllOf


def strongest(trips: tuple[Trip, ...]) -> Trip | None:
    """The trip whose consequence is carried out; the first of the strongest."""
    return max(trips, key=lambda trip: _STRENGTH[trip.then], default=None)


def tokens_left(condition: Condition | None, spent: Spent, grants: Mapping[str, int]) -> int | None:
    """How many tokens may be used until `condition` trips because of them; None where they alone do not trip it."""
    if isinstance(condition, Tokens):
        observed, allowed = condition.standing(spent, grants)
        return int(allowed - (observed or 0))
    if not isinstance(condition, AnyOf | AllOf):
        return None
    each = [tokens_left(part, spent, grants) for part in condition.parts]
    found = [left for left in each if left is not None]
    if isinstance(condition, AnyOf):
        return min(found, default=None)
    parts = zip(condition.parts, each, strict=True)
    waits = any(left is None and not part.trips(spent, grants) for part, left in parts)
    return None if waits else max(found, default=None)


def caps(condition: Condition | None) -> Iterator[_Cap]:
    """Every single cap in a condition, from left to right."""
    if isinstance(condition, AnyOf | AllOf):
        for part in condition.parts:
            yield from caps(part)
    elif condition is not None:
        yield condition


def _parts(condition: msgspec.Struct, of: type[AnyOf] | type[AllOf]) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, of) else (condition,)  # type: ignore[return-value]


def _rounds(recent: tuple[str, ...], period: Literal[1, 2]) -> int:
    """How many whole periods the tail of `recent` repeats. Two equal halves are a period of one, not of two."""
    if len(recent) < 2 * period or len(set(recent[-period:])) < period:
        return 0
    tail = recent[-period:]
    count = 0
    for end in range(len(recent), period - 1, -period):
        if recent[end - period : end] != tail:
            break
        count += 1
    return count


def problem_with(condition: object) -> str | None:
    """What is wrong with a condition that somebody has written, in words; None when nothing is.

    Apart from the conditions themselves, because those that a store holds must be read whatever they say.
    """
    if isinstance(condition, AnyOf | AllOf):
        return next((problem for part in condition.parts if (problem := problem_with(part)) is not None), None)
    if not isinstance(condition, _Cap):
        return f"{condition!r} is no condition; write one such as Turns(50) | Cost(usd=1), or None for no cap at all"
    then = getattr(condition, "then", None)
    if then not in list(Then):
        allowed = ", ".join(repr(one.value) for one in Then)
        return f"{type(condition).__name__}(…, then={then!r}): what then happens is one of {allowed}"
    return _problem_with_numbers(condition)


def _problem_with_numbers(cap: _Cap) -> str | None:
    kind = type(cap).__name__
    if isinstance(cap, _Count):
        n: object = cap.n
        is_whole = isinstance(n, int) and not isinstance(n, bool) and n >= 1
        return None if is_whole else f"{kind}({n!r}): it takes a whole number from 1 on"
    if isinstance(cap, Elapsed):
        given = {name: value for name in ("seconds", "minutes") if (value := getattr(cap, name)) != 0}
        if given and all(_is_above_zero(value) for value in given.values()):
            return None
        said = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{kind}({said}): it takes seconds or minutes, a number above 0"
    if isinstance(cap, Cost) and not _is_above_zero(cap.usd):
        return f"{kind}(usd={cap.usd!r}): it takes a number above 0"
    return None


def _is_above_zero(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


DEFAULT: Final[Condition] = Turns(50) | Elapsed(minutes=30)
"""What an agent gets that does not say when to stop."""
