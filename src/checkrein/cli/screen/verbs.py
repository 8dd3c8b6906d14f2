"""Verbs on one run, carried out beside the screen: it never waits for them, and hears when one is not taken."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from checkrein.cli.screen.bar import label
from checkrein.cli.screen.composer import Purpose
from checkrein.cli.screen.questions import Reply
from checkrein.control.control import Control
from checkrein.control.view import RunView
from checkrein.core.enums import Status
from checkrein.core.verb_specs import ABORT, ASK, CANCEL, PAUSE, REDIRECT, RESUME, SPECS, VerbSpec

_log = logging.getLogger(__name__)


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # plain words


LEAVE_SECONDS: Final = 2.0
"""How long leaving waits for verbs that were just asked for."""


class VerbSender:
    """`say` is told in one line why a verb was not taken."""

    def __init__(self, control: Control, run: str, by: str, say: Callable[[str], None]) -> None:
        self._control = control
        self._run = run
        self._by = by
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()

    def pause(self) -> None:
        self._do(PAUSE)

    def resume(self, view: RunView) -> None:
        self._do(RESUME, expected_seq=view.status_seq)

    def cancel(self) -> None:
        self._do(CANCEL)

    def abort(self, call: str, name: str) -> None:
        self._do(ABORT, name, call=call)

    def answer(self, reply: Reply, result: str = "", refused: Callable[[], None] = lambda: None) -> None:
        """`result` is what a person wrote of a call that happened: JSON, or else a text."""
        spec = SPECS[reply.verb]
        given: dict[str, Any] = {spec.call_name: reply.call}
        if reply.answer is not None:
            given["answer"] = reply.answer
        if reply.fingerprint:
            given["fingerprint"] = reply.fingerprint
        if result:
            given["result"] = _read(result)
        self._do(spec, refused=refused, **given)

    def send(self, purpose: Purpose, text: str, view: RunView, refused: Callable[[], None]) -> None:
        """What a person wrote. `refused` is called when it was not taken."""
        if purpose is Purpose.ASK:
            self._do(ASK, refused=refused, question=text)
        elif purpose is Purpose.RESUME and view.status is Status.PAUSED:
            self._do(RESUME, refused=refused, instruction=text, expected_seq=view.status_seq)
        else:
            self._do(REDIRECT, refused=refused, instruction=text, expected_seq=view.status_seq)

    async def settle(self, *, at_once: bool) -> None:
        """Give verbs that were just asked for a moment; then stop waiting for their receipts."""
        if self._tasks and not at_once:
            await asyncio.wait(self._tasks, timeout=LEAVE_SECONDS)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _do(self, spec: VerbSpec, about: str = "", *, refused: Callable[[], None] = lambda: None, **given: Any) -> None:
        name = f"{label(spec.name)} {about}".strip()

        async def carry_out() -> None:
            try:
                await getattr(self._control, spec.name)(self._run, by=self._by, **given)
            except Exception as error:  # whatever it is: a stop that came to nothing must not go unnoticed
                _log.info("%s was not taken: %s", name, error, extra={"run": self._run})
                refused()
                self._say(f"{name} was not taken: {error}")

        task = asyncio.get_running_loop().create_task(carry_out(), name=f"{name} {self._run}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
