"""Side questions: answered from a copy of the context, without tools, while the run goes on or stays paused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from checkrein.agents.asking import ModelPerformance
from checkrein.agents.threads import Conversation, told_of
from checkrein.core.words import Outcome
from checkrein.models.history import repair
from checkrein.models.messages import Request, Settings, User
from checkrein.models.port import Model
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Ended, Perform, Performance, Permit

_NO_SETTINGS = Settings()


def answer_with(
    model: Model, question: str, driver: Driver, *, instructions: str = "", settings: Settings = _NO_SETTINGS
) -> Perform:
    """How `question` is put to `model`: after everything that was said and done in the run so far."""

    async def request() -> Request:
        told = Conversation(await driver.journal.read(driver.run))
        messages = repair([*told.messages, User(question)], told.fates)
        return Request(instructions, messages, settings=settings)

    def perform(permit: Permit) -> Performance:
        return _Answering(model, request(), driver, permit)

    return perform


class _Answering:
    """The context is read first, then the model is asked."""

    def __init__(self, model: Model, request: Coroutine[Any, Any, Request], driver: Driver, permit: Permit) -> None:
        self._task = asyncio.get_running_loop().create_task(self._ask(model, request, driver, permit))

    async def _ask(self, model: Model, request: Coroutine[Any, Any, Request], driver: Driver, permit: Permit) -> Ended:
        inner = ModelPerformance(
            model,
            await request,
            driver.shows(permit),
            secrets=driver.secrets,
        )
        try:
            ended = await inner.ended()
        except asyncio.CancelledError:
            await inner.abort()
            ended = await inner.ended()
        told = told_of(ended.result)
        text = msgspec.json.encode(told.message.text if told is not None else "")
        return msgspec.structs.replace(ended, result=text)

    async def ended(self) -> Ended:
        await asyncio.wait([self._task])
        return Ended(outcome=Outcome.ABORTED) if self._task.cancelled() else self._task.result()

    async def abort(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        return False

    async def go_on(self) -> None:
        return None
