"""What the tests of the Anthropic wire share: a question, a long answer, and one who reads it and can be stopped."""

from __future__ import annotations

import asyncio
import time

from checkrein.models import Collector, Model, Request, ToolSpec, User, as_json, close
from checkrein.models.anthropic.model import AnthropicModel
from tests.support.patience import PATIENCE_SECONDS

MODEL = "claude-opus-4-6"
SEARCH = ToolSpec("search", "Finds.", as_json({"type": "object", "properties": {"q": {"type": "string"}}}))
ASK = Request("Be brief.", (User("Hello?"),), tools=(SEARCH,))
LONG = " ".join(f"word{number}" for number in range(5000))


def model_at(provider, name=MODEL, **options):
    return AnthropicModel(name, **{"api_key": provider.key, "base_url": provider.anthropic_url, **options})


class Reading:
    """A task that reads a stream, and can be stopped once a delta of some kind has come."""

    def __init__(self, model: Model, request: Request = ASK) -> None:
        self.collector = Collector(request)
        self.deltas: list[object] = []
        self.stopped_at = 0.0
        self._came = asyncio.Event()
        self._late: list[object] = []
        self.task = asyncio.create_task(self._read(model.stream(request)))

    async def _read(self, stream):
        try:
            async for delta in stream:
                (self._late if self.stopped_at else self.deltas).append(delta)
                self.collector.add(delta)
                self._came.set()
        finally:
            await close(stream)

    async def until(self, kind, count=1):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(isinstance(delta, kind) for delta in self.deltas) < count:
                self._came.clear()
                await self._came.wait()

    async def stop(self):
        """The task is cancelled, and nothing has come after that."""
        self.stopped_at = time.monotonic()
        self.task.cancel()
        await asyncio.wait([self.task])
        assert self.task.cancelled()
        assert self._late == [], "something was forwarded after the stop"
