"""The API and the page inside somebody else's application."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp

from checkrein.runtime import Runtime
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Authorize, Guard
from checkrein.server.auth.key_store import key_store
from checkrein.server.auth.policy import Policy
from checkrein.server.backend import RuntimeBackend
from checkrein.server.streaming.sse import Limits


def asgi(
    runtime: Runtime,
    *,
    authorize: Authorize | None = None,
    hosts: Sequence[str] = (),
    frame_ancestors: Sequence[str] = (),
    page: bool = True,
    login_url: str | None = None,
    limits: Limits | None = None,
) -> ASGIApp:
    """The runs of `runtime` over HTTP, to be mounted in a FastAPI or Starlette application under any prefix.

        app.mount("/agents", checkrein.asgi(runtime, authorize=who, login_url="/login", hosts=["app.example.com"]))

    `authorize` is given each request and says who makes it: a `Principal`, or None for nobody (401); it may be async.
    It is asked again every few seconds while a stream is open, and the stream ends when it says somebody else or
    nobody. Without it only the tokens of `checkrein token create` let anybody in. `login_url` is where a browser is
    sent that opens the page and is nobody yet; `next` is added to it. `hosts` are the names the application goes by,
    besides those of this machine; `frame_ancestors` the origins whose pages may show ours in a frame. The runtime must
    be open, in the same event loop, before requests come in, and is not closed here.
    """
    keys = key_store(runtime.store, lambda: runtime.journal)
    guard = Guard(keys, policy=Policy(hosts=hosts, frame_ancestors=frame_ancestors), authorize=authorize)
    return create_app(RuntimeBackend(runtime), guard, with_page=page, limits=limits, login_url=login_url)
