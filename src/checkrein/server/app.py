"""The HTTP application: every route, every error, and what stands before them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from checkrein.errors import StoreUnavailable, Unauthorised
from checkrein.server import errors, openapi, pages
from checkrein.server.backend import Backend
from checkrein.server.context import Guarding, ServerContext
from checkrein.server.routes import evidence, operations, runs, streams, verbs
from checkrein.server.streaming.hub import Hub
from checkrein.server.streaming.rate_limit import Admission, StreamGate
from checkrein.server.streaming.sse import Limits

_log = logging.getLogger(__name__)

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
    admission: Admission | None = None,
    with_page: bool = True,
    ui: Path = pages.UI,
    login_url: str | None = None,
) -> FastAPI:
    """The application over `backend`, behind `guard`. `app.state.hub` ends all streams when it is closed.

    `login_url`: where a browser is sent that opens the page and is not logged in, with `next=` and what it opened.

    It needs no lifespan of its own, so it can be mounted anywhere; where it has one, leaving it closes the hub.
    """
    hub, admission = Hub(backend, limits), admission or Admission()

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
        redirect_slashes=False,  # behind a proxy with TLS such a redirect would name http
    )
    site = ServerContext(backend, guard, hub)
    app.state.hub, app.state.site = hub, site
    errors.install(app)
    app.include_router(runs.routes(site))
    app.include_router(streams.routes(site, admission))
    app.include_router(verbs.routes(site))
    app.include_router(evidence.routes(site))
    app.include_router(operations.routes(site, admission))
    app.include_router(guard.routes)
    if with_page:
        app.include_router(pages.routes(ui), dependencies=[Depends(_LoginFirst(guard, login_url))] if login_url else [])
    app.add_middleware(_Guarded, guard=guard, backend=backend)
    app.add_middleware(StreamGate, admission=admission, knows=guard.knows)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


class _LoginFirst:
    """Sends whoever opens the page, and is nobody yet, to where they log in."""

    def __init__(self, guard: Guarding, url: str) -> None:
        self._guard = guard
        self._url = url

    async def __call__(self, request: Request) -> None:
        path: str = request.scope["path"]
        if "/ui/" in path:
            return
        try:
            await self._guard.principal(request)
        except Unauthorised:
            sign = "&" if "?" in self._url else "?"
            where = {"Location": f"{self._url}{sign}next={quote(path, safe='')}", "Cache-Control": "no-store"}
            raise HTTPException(303, "Log in first.", headers=where) from None


class _Guarded:
    """The application behind its guard, which gets the journal as soon as there is one, and the next one after it."""

    def __init__(self, app: ASGIApp, guard: Guarding, backend: Backend) -> None:
        self._app = guard.wrap(app)
        self._guard = guard
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._guard.journal = self._backend.journal
        except StoreUnavailable as error:  # whatever needs it says so itself
            _log.debug("a request came before there was a journal: %s", error)
        await self._app(scope, receive, send)


def _described(app: FastAPI) -> dict[str, Any]:
    """The description, with the schemas of the structs."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, summary=app.summary, description=app.description, routes=app.routes
        )
        found.setdefault("components", {}).setdefault("schemas", {}).update(openapi.components())
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
        app.openapi_schema = found
    return app.openapi_schema
