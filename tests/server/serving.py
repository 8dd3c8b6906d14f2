"""A real server on a real socket, and a client that reads what it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
import uvicorn
from fastapi import FastAPI

from checkrein import Agent, Principal, Role, Runtime
from checkrein.server.app import create_app
from checkrein.server.backend import Backend, RuntimeBackend
from checkrein.server.streaming.rate_limit import Admission
from tests.support.patience import PATIENCE_SECONDS
from tests.support.playground import EVERYBODY, OpenGuard


class HeaderGuard(OpenGuard):
    """Believes the header `who`: `name:role:owner`; without it they may everything. For tests of what the application
    does with whom."""

    async def principal(self, request: Any) -> Principal:
        if "who" not in request.headers:
            return EVERYBODY
        name, role, owner = request.headers["who"].split(":")
        return Principal(name=name, role=Role(role), owner=owner)


class Frame(NamedTuple):
    """One server-sent event; a comment has the kind `:`."""

    kind: str
    data: bytes
    id: str | None = None

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.data)


def frames(raw: bytes) -> list[Frame]:
    """Every whole frame in `raw`."""
    found = []
    for block in raw.split(b"\n\n")[:-1]:
        if block.startswith(b":"):
            found.append(Frame(":", block))
            continue
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        if b"data" in fields:
            name = fields.get(b"id")
            found.append(Frame(fields[b"event"].decode(), fields[b"data"], None if name is None else name.decode()))
    return found


class Client:
    """Requests to one server. What is not a stream is answered as `(status, json)`."""

    def __init__(self, base: str, session: aiohttp.ClientSession, app: FastAPI) -> None:
        self.base = base
        self.session = session
        self.app = app

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self._ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        if body is not None:
            options["json"] = body
        return await self._ask("POST", path, **options)

    async def _ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS), self.session.request(method, self.base + path, **options) as told:
            raw = await told.read()
            return told.status, msgspec.json.decode(raw) if raw else None

    async def start(self, agent: str, goal: str = "go", **more: Any) -> str:
        status, run = await self.post("/api/runs", {"agent": agent, "goal": goal, **more})
        assert status == 201, run
        return str(run["id"])

    async def until(self, run: str, *statuses: str) -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (view := (await self.get(f"/api/runs/{run}"))[1])["status"] not in statuses:
                await asyncio.sleep(0.02)
        return view

    @asynccontextmanager
    async def stream(self, path: str, **options: Any) -> AsyncIterator[Stream]:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=PATIENCE_SECONDS)
        async with self.session.get(self.base + path, timeout=timeout, **options) as told:
            yield Stream(told)


class Stream:
    """A stream that is being read."""

    def __init__(self, told: aiohttp.ClientResponse) -> None:
        self.told = told
        self.raw = b""
        self._given = 0

    async def next(self) -> Frame | None:
        """The next frame that is no comment; None when the stream has ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = [frame for frame in frames(self.raw) if frame.kind != ":"]
                if len(found) > self._given:
                    self._given += 1
                    return found[self._given - 1]
                piece = await self.told.content.readany()
                if not piece:
                    return None
                self.raw += piece

    async def until(self, kind: str) -> list[Frame]:
        """Frames up to and with the next one of this kind, or the end."""
        found = []
        while (frame := await self.next()) is not None:
            found.append(frame)
            if frame.kind == kind:
                break
        return found

    async def up_to(self, seq: int) -> None:
        """Read until the event of this seq has begun to come; what was read is not kept."""
        wanted, tail = b"\nid: %d\n" % seq, self.raw
        async with asyncio.timeout(PATIENCE_SECONDS):
            while wanted not in tail:
                piece = await self.told.content.readany()
                assert piece, "the stream has ended"
                tail = tail[-64:] + piece

    async def rest(self) -> list[Frame]:
        found = []
        while (frame := await self.next()) is not None:
            found.append(frame)
        return found


@asynccontextmanager
async def serving(app: Any, *, connections: int = 0) -> AsyncIterator[Client]:
    """`app` on a port of its own, in this event loop."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1, ws="none")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:
            yield Client(f"http://127.0.0.1:{port}", session, app)
    finally:
        hub = getattr(getattr(app, "state", None), "hub", None)
        if hub is not None:
            await hub.close()
        server.should_exit = True
        await task


async def begun(client: Client, runtime: Runtime, agent: Agent, status: str) -> str:
    """The id of a run of `agent`, once it has this status."""
    runtime.add(agent)
    run = await client.start(agent.name)
    await client.until(run, status)
    return run


def app_over(runtime: Runtime, **options: Any) -> FastAPI:
    return create_app(RuntimeBackend(runtime), HeaderGuard(), **options)


def app_over_backend(backend: Backend, **options: Any) -> FastAPI:
    """An application that lets every stream in, unless a test is about who is let in: the machine may be busy."""
    options.setdefault("admission", Admission(most_per_second=1e6, burst=1e6))
    return create_app(backend, HeaderGuard(), **options)
