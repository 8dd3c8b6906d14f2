"""The HTTP application: every route, every error, and what stands before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp, Receive, Scope, Send

from checkrein.errors import StoreUnavailable
from checkrein.server import errors, pages
from checkrein.server.backend import Backend
from checkrein.server.gate import Bucket, StreamGate
from checkrein.server.hub import Hub
from checkrein.server.limits import Limits
from checkrein.server.routes import docs, operating, runs, streams, verbs
from checkrein.server.site import Guarding, Site

STREAMS_PER_SECOND: Final = 300.0
STREAMS_AT_ONCE: Final = 600.0

DESCRIPTION: Final = """
Pause, redirect and cancel for agents, where stop means stop.

Every error is `{"code", "message", …}`: the code is stable and for programs, the message is a sentence for people. A
verb answers with its receipt (200), or, when that takes longer than `wait` seconds, with what it still waits for (202);
it is in force either way. A run that you may not see is answered like one that does not exist.
"""


def create_app(
    backend: Backend,
    guard: Guarding,
    *,
    limits: Limits | None = None,
    streams_per_second: float = STREAMS_PER_SECOND,
    streams_at_once: float = STREAMS_AT_ONCE,
    with_page: bool = True,
    ui: Path = pages.UI,
) -> FastAPI:
    """The application over `backend`, behind `guard`. `app.state.hub` ends all streams when it is closed.

    It needs no lifespan of its own, so it can be mounted anywhere; where it has one, leaving it closes the hub.
    """
    hub, bucket = Hub(backend, limits), Bucket(streams_per_second, streams_at_once)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await hub.close()

    app = FastAPI(
        title="Checkrein",
        summary="Pause, redirect and cancel for agents, where stop means stop",
        description=DESCRIPTION,
        version="1",
        lifespan=lifespan,
        docs_url=None,  # it would load its scripts from somebody else's server
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    site = Site(backend, guard, hub)
    app.state.hub, app.state.site = hub, site
    errors.install(app)
    app.include_router(runs.routes(site))
    app.include_router(streams.routes(site))
    app.include_router(verbs.routes(site))
    app.include_router(operating.routes(site, bucket))
    app.include_router(guard.routes)
    if with_page:
        app.include_router(pages.routes(ui))
    app.add_middleware(_Guarded, guard=guard, backend=backend)
    app.add_middleware(StreamGate, bucket=bucket)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


class _Guarded:
    """The application behind its guard, which gets the journal as soon as there is one, and the next one after it."""

    def __init__(self, app: ASGIApp, guard: Guarding, backend: Backend) -> None:
        self._app = guard.wrap(app)
        self._guard = guard
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(StoreUnavailable):
            self._guard.journal = self._backend.journal
        await self._app(scope, receive, send)


def _described(app: FastAPI) -> dict[str, Any]:
    """The description, with the schemas of the structs."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
        )
        found.setdefault("components", {}).setdefault("schemas", {}).update(docs.components())
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        app.openapi_schema = found
    return app.openapi_schema
