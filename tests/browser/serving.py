"""The server of the browser tests, as a process of its own: real runs, a real store, the real guard.

python -m tests.browser.serving FOLDER PORT TOKEN
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from checkrein.runtime import Runtime
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.token_store import Keys
from checkrein.server.backend import RuntimeBackend
from tests.browser.agents import all_agents
from tests.browser.page_agents import page_agents


async def serve(folder: Path, port: int, token: str) -> None:
    async with Runtime(f"sqlite:///{folder}/runs.db", agents=[*all_agents(folder), *page_agents(folder)]) as runtime:
        keys = Keys(folder / "access")
        keys.trust(token, Principal(name="you", role=Role.OPERATOR))
        app = create_app(RuntimeBackend(runtime), Guard(FileKeyStore(keys), journal=runtime.journal))
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        with socket.create_server(("127.0.0.1", port)) as listening:
            half = folder / "port.half"
            half.write_text(str(listening.getsockname()[1]))
            half.rename(folder / "port")
            await uvicorn.Server(config).serve(sockets=[listening])
        keys.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
