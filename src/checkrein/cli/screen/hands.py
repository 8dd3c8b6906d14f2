"""Verbs on one run, carried out beside the screen: it never waits for them, and hears when one is not taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from checkrein.cli.screen.answers import Reply
from checkrein.cli.screen.composer import Purpose
from checkrein.control.verbs import Control
from checkrein.control.view import RunView
from checkrein.core.words import Answer, Status, Verb

LEAVE_SECONDS: Final = 2.0
"""How long leaving waits for verbs that were just asked for."""


class Hands:
    """`say` is told in one line why a verb was not taken."""

    def __init__(self, control: Control, run: str, by: str, say: Callable[[str], None]) -> None:
        self._control = control
        self._run = run
        self._by = by
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()

    def pause(self) -> None:
        self._do("Pause", self._control.pause(self._run, by=self._by))

    def resume(self, view: RunView) -> None:
        self._do("Resume", self._control.resume(self._run, by=self._by, expected_seq=view.status_seq))

    def cancel(self) -> None:
        self._do("Cancel", self._control.cancel(self._run, by=self._by))

    def abort(self, call: str, name: str) -> None:
        self._do(f"Abort {name}", self._control.abort(self._run, call, by=self._by))

    def answer(self, reply: Reply) -> None:
        self._do("Answer", self._answer(reply))

    def send(self, purpose: Purpose, text: str, view: RunView, refused: Callable[[], None]) -> None:
        """What a person wrote. `refused` is called when it was not taken."""
        self._do(purpose.name.capitalize(), self._send(purpose, text, view), refused)

    async def settle(self, *, at_once: bool) -> None:
        """Give verbs that were just asked for a moment; then stop waiting for their receipts."""
        if self._tasks and not at_once:
            await asyncio.wait(self._tasks, timeout=LEAVE_SECONDS)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, reply: Reply) -> None:
        control, run = self._control, self._run
        match reply.verb:
            case Verb.APPROVE:
                await control.approve(run, reply.call, by=self._by)
            case Verb.DENY:
                await control.deny(run, reply.call, by=self._by)
            case Verb.RETRY_UNDO:
                await control.retry_undo(run, reply.call, by=self._by)
            case _:
                await control.resolve(run, reply.call, reply.answer or Answer.DID_NOT_HAPPEN, by=self._by)

    async def _send(self, purpose: Purpose, text: str, view: RunView) -> None:
        control, run = self._control, self._run
        if purpose is Purpose.ASK:
            await control.ask(run, text, by=self._by)
        elif purpose is Purpose.RESUME and view.status is Status.PAUSED:
            await control.resume(run, text, by=self._by, expected_seq=view.status_seq)
        else:
            await control.redirect(run, text, by=self._by, expected_seq=view.status_seq)

    def _do(self, name: str, verb: Coroutine[Any, Any, object], refused: Callable[[], None] = lambda: None) -> None:
        async def carry_out() -> None:
            try:
                await verb
            except Exception as error:  # whatever it is: a stop that came to nothing must not go unnoticed
                refused()
                self._say(f"{name} was not taken: {error}")

        task = asyncio.get_running_loop().create_task(carry_out(), name=f"{name} {self._run}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
