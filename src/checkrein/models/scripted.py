"""A model that says what it was told to: for tests, for the demo and for measuring everything else.

It behaves as a provider does, and not better: it streams piece by piece, at a pace if one is given, refuses a history
that a provider would refuse, and can fail at any piece. Its own counts are a witness of what was really asked of it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from checkrein.core.conditions import Usage
from checkrein.errors import MisuseError
from checkrein.models.base import (
    Delta,
    Finish,
    Finished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageDelta,
    estimate_tokens,
)
from checkrein.models.history import check
from checkrein.models.messages import Assistant, Request, ToolCall, as_json

_WORD: Final = re.compile(r"\s*\S+\s*|\s+")
_ARGUMENT_CHARS: Final = 12
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in place of the piece number `after_pieces`, at the first `times` attempts (None: at every one)."""

    error: Exception
    after_pieces: int = 0
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One reply: it thinks, speaks, then asks for tools.

    A call is a name and its arguments, and gets an id that no other turn uses; or a `ToolCall`, streamed as it is, so
    that a script can be as wrong as a model.
    """

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]] | ToolCall] = ()
    thinking: str = ""
    fails: Failure | None = None
    finish: Finish | None = None
    """Why it ends; None: as its calls suggest."""


Script = Turn | str | Callable[[Request], Turn | str]
"""A turn, the text of one, or a function that makes it from the request."""


class ScriptedModel:
    """Plays `turns`: the first to a history without replies, the next to one with a whole reply in it, and so on.

    Only the history decides, so a replay in another process goes on at the right place, and a turn that was interrupted
    is played again. One function in place of the turns plays them all.
    """

    def __init__(
        self,
        turns: Sequence[Script] | Callable[[Request], Turn | str],
        tokens_per_second: float | None = None,
        name: str = "scripted",
        *,
        strict: bool = True,
        continues: bool = True,
    ) -> None:
        """`strict` refuses what a provider would refuse; it costs a look at the whole history.

        `continues`: in the middle of an answer it can go on where it broke off, as many engines can and some cannot.
        """
        if tokens_per_second is not None and tokens_per_second <= 0:
            raise MisuseError("tokens_per_second must be above 0; None streams without pauses.")
        self.name = name
        self.requests = 0
        """How often it was asked."""
        self.tokens = 0
        """How many pieces it has streamed, of all replies together."""
        self.live = 0
        """How many replies are being read now."""
        self.stopped = 0
        """How many replies were left before their end, by a stop or an error."""
        self.asked: deque[Request] = deque(maxlen=_REMEMBERED)
        """The latest requests."""
        self._turns = turns
        self._seconds_per_token = 0.0 if tokens_per_second is None else 1 / tokens_per_second
        self._strict = strict
        self._continues = continues
        self._failures: dict[int, int] = {}

    async def can_continue(self, request: Request) -> bool:
        return self._continues

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.requests += 1
        self.asked.append(request)
        await checkpoint_if_cancelled()
        if self._strict:
            check(request.messages)
        place = sum(isinstance(message, Assistant) and not message.interrupted for message in request.messages)
        turn = self._turn(place, request)
        failure = self._failure(place, turn)
        whole = False
        self.live += 1
        try:
            read = estimate_tokens(request)
            yield UsageDelta(Usage(input_tokens=read), final=False)
            written = 0
            due = anyio.current_time() if self._seconds_per_token else 0.0
            for delta in _pieces(turn, place):
                if self._seconds_per_token:
                    due += self._seconds_per_token
                    await _sleep_until(due)
                if failure is not None and written >= failure.after_pieces:
                    break
                self.tokens += 1
                written += 1
                yield delta
            if failure is not None:
                raise failure.error.with_traceback(None)
            whole = True
            yield UsageDelta(Usage(input_tokens=read, output_tokens=written))
            yield Finished(turn.finish or (Finish.TOOL_CALLS if turn.calls else Finish.STOP))
        finally:
            self.live -= 1
            self.stopped += not whole

    def _turn(self, place: int, request: Request) -> Turn:
        script: Script
        if callable(self._turns):
            script = self._turns
        elif place < len(self._turns):
            script = self._turns[place]
        else:
            raise MisuseError(
                f"The script of {self.name} has {len(self._turns)} turns; the history has {place} replies and asks for "
                "one more. Add a turn, or pass a function that makes them.",
                place=place,
            )
        turn = script(request) if callable(script) else script
        return _rest(Turn(turn) if isinstance(turn, str) else turn, request)

    def _failure(self, place: int, turn: Turn) -> Failure | None:
        """The failure that is due at this attempt of the turn."""
        if turn.fails is None:
            return None
        before = self._failures.get(place, 0)
        if turn.fails.times is not None and before >= turn.fails.times:
            return None
        self._failures[place] = before + 1
        return turn.fails


async def _sleep_until(due: float) -> None:
    """Wait for the next piece. A reader that was slower than the pace does not wait, but can still be cancelled."""
    seconds = due - anyio.current_time()
    if seconds > 0:
        await anyio.sleep(seconds)
    else:
        await checkpoint_if_cancelled()


def _rest(turn: Turn, request: Request) -> Turn:
    """What is left of a turn in the middle of which the model was stopped, and is asked to go on."""
    last = request.messages[-1] if request.continues else None
    if not isinstance(last, Assistant) or not turn.text.startswith(last.text):
        return turn
    return replace(turn, text=turn.text[len(last.text) :], thinking="")


def _pieces(turn: Turn, place: int) -> Iterator[Delta]:
    for word in _WORD.findall(turn.thinking):
        yield ThinkingDelta(word)
    for word in _WORD.findall(turn.text):
        yield TextDelta(word)
    for index, asked in enumerate(turn.calls):
        if isinstance(asked, ToolCall):
            call = asked
        else:
            name, arguments = asked
            call = ToolCall(id=f"call_{place}_{index}", name=name, arguments=as_json(arguments))
        yield ToolCallDelta(index, id=call.id, name=call.name)
        text = bytes(call.arguments).decode()
        for start in range(0, len(text), _ARGUMENT_CHARS):
            yield ToolCallDelta(index, arguments=text[start : start + _ARGUMENT_CHARS])
