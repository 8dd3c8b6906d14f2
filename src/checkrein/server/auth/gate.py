"""The gate: every request passes it before the application sees it, and every answer on its way out.

    Host        one of our names, said once, written plainly              421 wrong_host
    address     no token in it                                            400 token_in_address
    Origin      ours; or one that the token names, for what the bar does  403 cross_site
    cookie      only for our own pages: see `_check_ambient`              403 cross_site
    body        JSON, and not too much of it                              415 not_json · 413 too_large

It knows nothing of runs. A request it lets through carries what it found in `scope[ADMITTED]`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from anyio import CancelScope

from checkrein.errors import AccessError, RequestRefused, StoreUnavailable
from checkrein.server.auth import cors
from checkrein.server.auth.answers import Answer, Body, BodyTooLarge, Message, Receive, Scope, Send, too_large
from checkrein.server.auth.asked import OWN_SITE, Asked
from checkrein.server.auth.attempts import is_stop
from checkrein.server.auth.principals import Principal

if TYPE_CHECKING:
    from checkrein.server.auth.guard import Guard

App = Callable[[Scope, Receive, Send], Awaitable[None]]

ADMITTED: Final = "checkrein.admitted"
WATCH_SECONDS: Final = 2.0
"""How often a stream asks whether its reader may still read."""


class Admitted:
    """What is known of a request that was let through."""

    def __init__(self, asked: Asked, principal: Principal | None, headers: cors.Headers = ()) -> None:
        self.asked = asked
        self.principal = principal
        """Who bears its token or session; None where it carries none that is good."""
        self.headers = headers
        """What lets a page of another origin read the answer."""


class Gate:
    """Pure ASGI: `app.add_middleware(Gate, guard=guard)`, or `Gate(app, guard)`."""

    def __init__(self, app: App, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._take(scope, receive, send)
        else:
            # There is no websocket here, and a browser would open one across origins without asking.
            await send({"type": "websocket.close", "code": 1008})

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(scope, self._guard.policy)
        answer = Answer(asked, send, self._guard.policy.headers)
        try:
            admitted = self._admit(asked)
        except (AccessError, StoreUnavailable) as error:
            await answer.refuse(error)
            return
        answer.allow(admitted.headers)
        if asked.is_preflight and asked.is_foreign:
            await answer.empty()
            return
        scope[ADMITTED] = admitted
        body = Body(receive, self._guard.policy.body_bytes)
        watch = Watch(self._guard, admitted)

        async def pass_on(message: Message) -> None:
            await answer.pass_on(message, body)
            if answer.is_stream:
                watch.begin()

        try:
            with watch.scope:
                await self._app(scope, body.receive, pass_on)
        except BodyTooLarge:
            await answer.refuse(too_large(body.most))
        finally:
            watch.end()
        if answer.is_stream:
            await answer.end()

    def _admit(self, asked: Asked) -> Admitted:
        _check_host(asked, self._guard)
        _check_address(asked)
        if asked.is_preflight and asked.is_foreign:
            return self._admit_preflight(asked)
        principal = self._bearer(asked)
        headers = self._check_origin(asked, principal)
        if asked.bearer is None:
            _check_ambient(asked)
            principal = self._guard.session(asked)
        _check_body(asked, self._guard.policy.body_bytes)
        return Admitted(asked, principal, headers)

    def _admit_preflight(self, asked: Asked) -> Admitted:
        if not cors.may_follow(asked) or not self._guard.knows_origin(asked.origin):
            raise _cross_site(asked)
        return Admitted(asked, None, cors.promising(asked))

    def _bearer(self, asked: Asked) -> Principal | None:
        if asked.bearer is None:
            return None
        principal = self._guard.keys.find(asked.bearer)
        if principal is None and self._guard.is_ours(asked.bearer):
            self._guard.was_wrong(asked, is_stop=is_stop(asked.path))
        return principal

    def _check_origin(self, asked: Asked, principal: Principal | None) -> cors.Headers:
        if not asked.is_foreign:
            return ()
        if cors.is_a_file(asked) and self._guard.knows_origin(asked.origin):
            return cors.allowing(asked)
        if not cors.is_for_the_bar(asked) or asked.bearer is None:
            raise _cross_site(asked)
        named = str(asked.origin) in principal.origins if principal else self._guard.knows_origin(asked.origin)
        if asked.origin is None or not named:
            raise _cross_site(asked)
        # Also for a token that has expired: the bar can then say so.
        return cors.allowing(asked)


def _check_host(asked: Asked, guard: Guard) -> None:
    if asked.host is None or not guard.policy.hosts.knows(asked.host):
        said = ", ".join(asked.all("host"))[:100]
        raise RequestRefused(
            f"This server does not go by the name {said!r}; add it with --allow-host, or hosts=[…], if it should.",
            code="wrong_host",
            status=421,
        )


def _check_address(asked: Asked) -> None:
    if asked.has_secret_in_address:
        raise RequestRefused(
            "A token does not belong in an address, where logs and histories keep it: revoke it with `checkrein token "
            "revoke`, and send the next one as `Authorization: Bearer …`.",
            code="token_in_address",
            status=400,
        )


def _check_ambient(asked: Asked) -> None:
    """Refuse what a browser may have sent without a page of ours asking for it.

    Without a token in its header, whatever lets the request in is something a browser adds by itself: a cookie, the
    network it is in. A foreign `Origin` was refused before; here it is about a request that names none. `same-site` is
    not enough: every port of this machine is the same site.
    """
    if asked.is_safe:
        if asked.is_api and asked.fetch_site not in OWN_SITE:
            raise _cross_site(asked)
        return
    if asked.fetch_site not in (None, "same-origin"):
        raise _cross_site(asked)
    if asked.has_cookies and not asked.is_own_origin and asked.fetch_site is None:
        raise _cross_site(asked)


def _check_body(asked: Asked, most: int) -> None:
    if asked.body_bytes > most:
        raise too_large(most)
    if not asked.is_safe and asked.has_body and not asked.is_json:
        raise RequestRefused(
            "Send the body as JSON, with the header `Content-Type: application/json`.", code="not_json", status=415
        )


def _cross_site(asked: Asked) -> RequestRefused:
    who = ", ".join(asked.all("origin"))[:100]
    sentence = (
        f"A page of {who!r} may not ask this server for that" if who else "It is not clear which page asks for that"
    )
    return RequestRefused(
        f"{sentence}; a page of your own needs a token that names its origin (`checkrein token create --origin`).",
        code="cross_site",
        status=403,
    )


class Watch:
    """Ends a stream soon after the token or session that it began with has ended."""

    def __init__(self, guard: Guard, admitted: Admitted) -> None:
        self.scope = CancelScope()
        self._guard = guard
        self._admitted = admitted
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        try:
            is_good = self._admitted.principal is None or self._guard.still_valid(self._admitted.principal)
        except StoreUnavailable:
            is_good = False  # its reader comes back, and is told why
        if is_good:
            self.begin()
        else:
            self.scope.cancel()
