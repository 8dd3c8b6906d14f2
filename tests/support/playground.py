"""The server in one process, without a guard, over the demo's agent: to build the page against, never to serve it.

    python -m tests.support.playground [--port 8421] [--pace 1.0] [--folder FOLDER]

Everybody on this machine may do everything. It listens on 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import uvicorn
from fastapi import APIRouter, Request
from starlette.types import ASGIApp, Scope

from checkrein import demo
from checkrein.journal.base import Journal
from checkrein.runtime import Runtime
from checkrein.server.app import create_app
from checkrein.server.auth.principals import Action, Principal, Role
from checkrein.server.backend import RuntimeBackend

EVERYBODY = Principal(name="you", role=Role.OPERATOR, rights=tuple(Action))


class OpenGuard:
    """Lets everybody do everything."""

    def __init__(self, principal: Principal = EVERYBODY) -> None:
        self.routes = APIRouter()
        self.journal: Journal | None = None
        self._principal = principal

    async def principal(self, request: Request) -> Principal:
        return self._principal

    async def knows(self, scope: Scope) -> bool:
        return True

    def wrap(self, app: ASGIApp) -> ASGIApp:
        return app


async def serve(folder: Path, *, port: int, pace: float) -> None:
    agent = demo.agent(folder, pace=pace)
    async with Runtime(f"sqlite:///{folder}/runs.db", agents=[agent]) as runtime:
        app = create_app(RuntimeBackend(runtime), OpenGuard())
        config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1)
        print(f"http://127.0.0.1:{port}/", flush=True)
        await uvicorn.Server(config).serve()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.playground")
    parser.add_argument("--port", type=int, default=8421)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkrein-playground-") as made:
        folder: Path = (given.folder or Path(made)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(serve(folder, port=given.port, pace=given.pace))


if __name__ == "__main__":
    main()
