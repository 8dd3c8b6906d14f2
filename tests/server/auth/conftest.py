from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request

from checkrein.server import errors
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.principals import Action
from checkrein.server.auth.token_store import OPERATOR, Keys

SERVER_TOKEN = "the-servers-own-token-" + "x" * 30


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs.db.access"


@pytest.fixture
def keys(folder: Path, clock: Clock) -> Iterator[Keys]:
    opened = Keys(folder, now=clock)
    opened.trust(SERVER_TOKEN, OPERATOR)
    yield opened
    opened.close()


def stand_in(guard: Guard) -> Any:
    """An application with one route of each kind, behind the gate. It notes what reached it."""
    app = FastAPI(docs_url=None, redoc_url=None)
    errors.install(app)
    app.include_router(guard.routes)
    app.state.reached = []

    @app.get("/")
    async def page() -> str:
        return "the page"

    @app.get("/ui/{name}")
    async def file(name: str) -> str:
        return name

    @app.get("/api/runs")
    @app.get("/api/runs/{run}")
    @app.get("/api/runs/{run}/live")
    async def see(request: Request, run: str = "") -> dict[str, str]:
        principal = await guard.allow(request, Action.SEE)
        app.state.reached.append(("see", run))
        return {"by": principal.name}

    @app.post("/api/runs/{run}/{verb}")
    async def steer(request: Request, run: str, verb: str) -> dict[str, str]:
        principal = await guard.allow(request, Action.STEER)
        size = len(await request.body())
        app.state.reached.append((verb, run))
        return {"by": principal.name, "bytes": str(size)}

    @app.post("/api/halt")
    async def halt(request: Request) -> dict[str, str]:
        principal = await guard.allow(request, Action.OPERATE)
        app.state.reached.append(("halt", ""))
        return {"by": principal.name}

    class Behind:
        reached: list[tuple[str, str]] = app.state.reached

        def __init__(self) -> None:
            self._gate = guard.wrap(app)

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self._gate(scope, receive, send)

    return Behind()


@pytest.fixture
def guard(keys: Keys, clock: Clock) -> Guard:
    return Guard(FileKeyStore(keys), policy=Policy(hosts=["agents.example.com"], body_bytes=10_000))


@pytest.fixture
def app(guard: Guard) -> Any:
    return stand_in(guard)
