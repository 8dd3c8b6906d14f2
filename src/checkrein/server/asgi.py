"""The API and the page inside somebody else's application."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp

from checkrein.control.runs import Runtime
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Authorize, Guard
from checkrein.server.auth.keys import Keys, access_folder
from checkrein.server.auth.policy import Policy
from checkrein.server.backend import RuntimeBackend
from checkrein.server.limits import Limits


def asgi(
    runtime: Runtime,
    *,
    authorize: Authorize | None = None,
    hosts: Sequence[str] = (),
    frame_ancestors: Sequence[str] = (),
    page: bool = True,
    limits: Limits | None = None,
) -> ASGIApp:
    """The runs of `runtime` over HTTP, to be mounted in a FastAPI or Starlette application under any prefix.

        app.mount("/agents", checkrein.asgi(runtime, authorize=who, hosts=["app.example.com"]))

    `authorize` is given each request and says who makes it: a `Principal`, or None for nobody (401); it may be async.
    Without it only the tokens of `checkrein token create` let anybody in. `hosts` are the names the application goes
    by, besides those of this machine; `frame_ancestors` the origins whose pages may show ours in a frame. The runtime
    must be open, in the same event loop, before requests come in, and is not closed here.
    """
    store = runtime.store
    keys = Keys(access_folder(store)) if store.startswith("sqlite:///") else Keys()
    guard = Guard(keys, policy=Policy(hosts=hosts, frame_ancestors=frame_ancestors), authorize=authorize)
    return create_app(RuntimeBackend(runtime), guard, with_page=page, limits=limits)
