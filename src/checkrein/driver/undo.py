"""Undo (compensation) of effects: at most a few tries each, and then an effect is left, with a way to try again.

Asking a tool whether a call in doubt happened: a help for whoever decides, and no decision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from checkrein.calls.arguments import recordable, stored
from checkrein.calls.base import CallResult, Undo, UndoneCall, finishing
from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, Outcome
from checkrein.core.events import UNDO_PREFIX, CallChecked, CallFinished, CallResolved, CallStarted
from checkrein.core.orders import undo_seconds
from checkrein.driver.commits import CommandRefused
from checkrein.driver.ownership import OwnershipLost
from checkrein.driver.session import RunSession
from checkrein.errors import Fenced, JournalError, MisuseError, RunOver
from checkrein.timings import SETTLE_SECONDS

_log = logging.getLogger(__name__)

UNDO_TRIES: Final = 3
AGAIN_SECONDS: Final = 0.2
"""How long to wait before a store that did not answer is asked again."""
ERROR_CHARS: Final = 200
"""How much of what went wrong with an undo is said where its effect is left. The rest is with the call."""


FENCED: Final = "an operator's halt is in force, and nothing is undone under it; reset the halt and try again"
"""Why an effect is left that could not even begin to be undone."""


class _NoSuchUndo(Exception):
    """The undo that a run has recorded is not to be found any more. Trying again would find it no better."""


Below = Callable[[], Awaitable[Collection[str]]]
"""The sub-runs that a cancel still has to wait for."""


async def no_sub_runs() -> tuple[str, ...]:
    """Nobody is waited for."""
    return ()


def _said(error: BaseException) -> str:
    """An error in words, also one that cannot say them itself."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _brief(error: str) -> str:
    """The first line of an error, not longer than one reads in a receipt."""
    line = error.partition("\n")[0]
    return line if len(line) <= ERROR_CHARS else f"{line[: ERROR_CHARS - 1]}…"


class Undoing:
    """One undo at a time. `begin` is how the program begins one, `below` what a cancel undoes before."""

    def __init__(
        self, session: RunSession, begin: Undo, *, below: Below = no_sub_runs, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self._session = session
        self._begin = begin
        self._below = below
        self._settle_seconds = settle_seconds
        self.is_busy = False
        self._calls: dict[str, UndoneCall] = {}
        self._read_to = 0

    def start(self, effect: Effect) -> None:
        """Undo `effect`, unless an undo is under way."""
        if not self.is_busy:
            self.is_busy = True
            self._session.start(self._undo(effect))

    async def _undo(self, effect: Effect) -> None:
        try:
            await self._undo_or_leave(effect)
        except JournalError as error:
            _log.warning("an undo waits for the store: %s", error, extra=self._about(effect))
            await asyncio.sleep(AGAIN_SECONDS)  # it is due again at once
        finally:
            self.is_busy = False

    async def _undo_or_leave(self, effect: Effect) -> None:
        """Undo one effect: a few tries within its share of the time, and then it is left, with a way to try again."""
        # Read now, and not when the order was made: an undo that has ended since may have been of this very effect,
        # or it has turned out that its call had never begun.
        await self._session.writer.flush()
        effects = await self._session.journal.effects(self._session.run)
        at = self._session.now()
        seconds = undo_seconds(self._session.state, effects, at=at, settle_seconds=self._settle_seconds)
        why = await self._try(effect, effects, seconds)
        if why is not None:
            await self._leave(effect, why)

    async def _try(self, effect: Effect, effects: tuple[Effect, ...], seconds: float) -> str | None:
        """Undo it. Returns why it has to be left; None when there is nothing more to do about it for now."""
        clock = asyncio.get_running_loop().time
        until, error = clock() + seconds, ""
        for number in range(1, UNDO_TRIES + 1):
            try:
                ended = await self._undo_once(effect, effects, number, until - clock())
            except Fenced as fenced:
                _log.warning("an undo may not begin: %s", fenced, extra=self._about(effect))
                return FENCED
            except _NoSuchUndo as gone:
                _log.warning("an undo could not begin: %s", gone, extra=self._about(effect))
                return f"its undo could not begin: {gone}"
            if ended is None or ended.outcome is Outcome.COMPLETED:
                return None
            error = ended.error or ended.outcome.value
            _log.warning("an undo failed (%d of %d)", number, UNDO_TRIES, extra=self._about(effect))
            if clock() >= until:
                return f"its undo did not end within {seconds:.3g} s"
            effects = await self._session.journal.effects(self._session.run)
        return f"its undo failed {UNDO_TRIES} times: {_brief(error)}"

    async def _leave(self, effect: Effect, why: str) -> None:
        leave = c.LeaveEffect(
            id=self._session.new_id("left"),
            at=self._session.now(),
            effect=effect.id,
            effects=await self._session.journal.effects(self._session.run),
            why=why,
        )
        verdict = decide(self._session.state, leave)
        if isinstance(verdict, tuple):
            self._session.writer.record(*verdict)
            await self._session.writer.flush()

    def _about(self, effect: Effect) -> dict[str, object]:
        return {"run": self._session.run, "epoch": self._session.ownership.epoch, "call": effect.id}

    async def _undo_once(
        self, effect: Effect, effects: tuple[Effect, ...], number: int, seconds: float
    ) -> CallResult | None:
        """How a try ended; None when it is not due. Raises `Fenced`, or `_NoSuchUndo`."""
        call = UNDO_PREFIX + effect.id
        start = c.StartUndo(
            id=self._session.new_id("undo"),
            at=self._session.now(),
            epoch=self._session.ownership.epoch,
            effect=effect.id,
            effects=effects,
            attempt=number,
            below=tuple(await self._below()),
        )
        if self._session.is_halted:
            raise Fenced("An operator's halt is in force.")
        try:
            await self._session.writer.commit(start)
        except (CommandRefused, RunOver) as refused:
            _log.debug("an undo is not due: %s", refused, extra=self._about(effect))
            return None
        undone = await self.call_of(effect.id)
        if not self._session.ownership.check():
            raise OwnershipLost
        try:
            execution = self._begin(effect, undone)
        except MisuseError as error:
            await self._record(call, CallResult(outcome=Outcome.FAILED, error=error.message))
            raise _NoSuchUndo(recordable(error.message)) from error
        except (Exception, SystemExit) as error:
            ended = CallResult(outcome=Outcome.FAILED, error=_said(error))
            await self._record(call, ended)
            return ended
        try:
            ended = await self._session.calls.end_within(seconds, call, execution)
        except OwnershipLost:
            raise
        except Exception as error:
            # Without an outcome it would keep every other undo from its turn.
            _log.warning("nobody knows how an undo ended", exc_info=True, extra=self._about(effect))
            ended = CallResult(outcome=Outcome.FAILED, error=_said(error))
        await self._record(call, ended)
        return ended

    async def _record(self, call: str, ended: CallResult) -> None:
        self._note(call, ended)
        await self._session.writer.flush()

    def _note(self, call: str, ended: CallResult) -> None:
        command = finishing(call, 1, ended, self._session.now())
        command = replace(command, id=self._session.new_id("undone"), result=None)
        verdict = decide(self._session.state, command)
        if isinstance(verdict, tuple):
            self._session.writer.record(*verdict)

    async def call_of(self, effect: str) -> UndoneCall:
        """The call behind an effect, as far as the journal knows it. What was read for one undo serves the next."""
        for record in await self._session.journal.read(self._session.run, after=self._read_to):
            self._read_to = record.seq
            match record.event:
                case CallStarted(effect=str(), kind=CallKind.TOOL) as started:
                    arguments = b"null" if started.arguments is None else bytes(started.arguments)
                    self._calls[started.call] = UndoneCall(
                        id=started.call, key=started.key, name=started.name, arguments=arguments
                    )
                case CallFinished(call=call, outcome=outcome, result=result) if call in self._calls:
                    self._calls[call] = replace(self._calls[call], outcome=outcome, result=stored(result))
                case CallResolved(call=call, answer=Answer.HAPPENED, result=result) if call in self._calls:
                    self._calls[call] = replace(self._calls[call], outcome=Outcome.COMPLETED, result=stored(result))
        return self._calls[effect]


CHECK_PREFIX: Final = "check:"

_ANSWERS: Final[dict[Any, Answer]] = {
    True: Answer.HAPPENED,
    False: Answer.DID_NOT_HAPPEN,
    "happened": Answer.HAPPENED,
    "did_not_happen": Answer.DID_NOT_HAPPEN,
}


def checked(ended: CallResult, *, id: str, at: float, call: str) -> CallChecked:
    """What came of it. A tool answers True or False, `happened` or `did_not_happen`; or an object with `happened` and
    the `result` that the call would have had. Anything else means that it cannot tell."""
    if ended.outcome is not Outcome.COMPLETED or ended.result is None:
        return CallChecked(id=id, at=at, call=call, note=ended.error or "the check did not come to an end")
    said: Any = msgspec.json.decode(ended.result)
    result: Any = None
    if isinstance(said, dict):
        said, result = said.get("happened"), said.get("result")
    answer = _ANSWERS.get(said) if isinstance(said, bool | str) else None
    raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
    return CallChecked(id=id, at=at, call=call, answer=answer, result=raw)
