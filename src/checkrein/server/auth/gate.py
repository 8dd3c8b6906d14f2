"""The gate: every request passes it before the application sees it, and every answer on its way out.

    Host        one of our names, said once, written plainly              421 wrong_host
    address     no token in it                                            400 token_in_address
    Origin      ours; or one that the token names, for what the bar does  403 cross_site
    cookie      only for our own pages: see `_check_ambient`              403 cross_site
    body        JSON, not too much of it, and all that was announced      415 not_json · 413 too_large
                                                                          400 body_missing

It knows nothing of runs. A request it lets through carries what it found in `scope[ADMITTED]`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final

from anyio import CancelScope

from checkrein.errors import AccessError, RequestRefused, StoreUnavailable
from checkrein.server.auth import cors
from checkrein.server.auth.principals import Principal
from checkrein.server.auth.request import OWN_SITE, RequestInfo, is_stop
from checkrein.server.auth.responses import Answer, Body, BodyRefused, Message, Receive, Scope, Send, too_large

if TYPE_CHECKING:
    from starlette.requests import Request

    from checkrein.server.auth.guard import Guard
    from checkrein.server.auth.key_store import KeyStore

App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger(__name__)

ADMITTED: Final = "checkrein.admitted"
STRANGERS_BODY_BYTES: Final = 16 * 1024
WATCH_SECONDS: Final = 1.0
"""How often it is asked whether those who read streams may still do so."""
ASK_AGAIN_SECONDS: Final = 5.0
"""How often an application that vouches for a reader is asked, and how long it may take to answer."""


class Admitted:
    """What is known of a request that was let through."""

    def __init__(self, asked: RequestInfo, principal: Principal | None, headers: cors.Headers = ()) -> None:
        self.asked = asked
        self.principal = principal
        """Who bears its token or session; None where it carries none that is good."""
        self.headers = headers
        """What lets a page of another origin read the answer."""
        self.vouched: Request | None = None
        """The request by which the application said who this is, to be asked about again."""


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
        asked = RequestInfo(scope, self._guard.policy)
        answer = Answer(asked, send, self._guard.policy.headers)
        try:
            admitted = await self._admit(asked)
        except (AccessError, StoreUnavailable) as error:
            _log.info("refused %s of %s: %s", asked.method, asked.address, error.code)
            await answer.refuse(error)
            return
        answer.allow(admitted.headers)
        if asked.is_preflight and asked.is_foreign:
            await answer.empty()
            return
        scope[ADMITTED] = admitted
        body = Body(asked, receive, self._most_of(admitted))
        watch = Watch(self._guard, admitted)

        async def pass_on(message: Message) -> None:
            await answer.pass_on(message, body)
            if answer.is_stream:
                watch.begin()

        try:
            with watch.scope:
                await self._app(scope, body.receive, pass_on)
        except BodyRefused:
            assert body.refusal is not None
            await answer.refuse(body.refusal)
        finally:
            watch.end()
        if answer.is_stream:
            await answer.end()

    def _most_of(self, admitted: Admitted) -> int:
        """How much of a body is read: of a stranger's, what it takes to log in."""
        most = self._guard.policy.body_bytes
        is_stranger = admitted.principal is None and self._guard.authorize is None
        return min(most, STRANGERS_BODY_BYTES) if is_stranger else most

    async def _admit(self, asked: RequestInfo) -> Admitted:
        _check_host(asked, self._guard)
        _check_address(asked)
        if asked.is_preflight and asked.is_foreign:
            return await self._admit_preflight(asked)
        principal = await self._bearer(asked)
        headers = await self._check_origin(asked, principal)
        if asked.bearer is None:
            _check_ambient(asked)
            principal = await self._guard.session(asked)
        _check_body(asked, self._guard.policy.body_bytes)
        return Admitted(asked, principal, headers)

    async def _admit_preflight(self, asked: RequestInfo) -> Admitted:
        if not cors.may_follow(asked) or not await self._guard.knows_origin(asked.origin):
            raise _cross_site(asked)
        return Admitted(asked, None, cors.promising(asked))

    async def _bearer(self, asked: RequestInfo) -> Principal | None:
        if asked.bearer is None:
            return None
        principal = await self._guard.find(asked.bearer)
        if principal is None and self._guard.is_ours(asked.bearer):
            self._guard.was_wrong(asked, is_stop=is_stop(asked.path))
        return principal

    async def _check_origin(self, asked: RequestInfo, principal: Principal | None) -> cors.Headers:
        if not asked.is_foreign:
            return ()
        if cors.is_a_file(asked) and await self._guard.knows_origin(asked.origin):
            return cors.allowing(asked)
        if not cors.is_for_the_bar(asked) or asked.bearer is None:
            raise _cross_site(asked)
        named = str(asked.origin) in principal.origins if principal else await self._guard.knows_origin(asked.origin)
        if asked.origin is None or not named:
            raise _cross_site(asked)
        # Also for a token that has expired: the bar can then say so.
        return cors.allowing(asked)


def _check_host(asked: RequestInfo, guard: Guard) -> None:
    if asked.host is None or not guard.policy.hosts.knows(asked.host):
        said = ", ".join(asked.all("host"))[:100]
        raise RequestRefused(
            f"This server does not go by the name {said!r}; add it with --allow-host, or hosts=[…], if it should.",
            code="wrong_host",
            status=421,
        )


def _check_address(asked: RequestInfo) -> None:
    if asked.has_secret_in_address:
        raise RequestRefused(
            "A token does not belong in an address, where logs and histories keep it: revoke it with `checkrein token "
            "revoke`, and send the next one as `Authorization: Bearer …`.",
            code="token_in_address",
            status=400,
        )


def _check_ambient(asked: RequestInfo) -> None:
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


def _check_body(asked: RequestInfo, most: int) -> None:
    if asked.body_bytes > most:
        raise too_large(most)
    if not asked.is_safe and asked.has_body and not asked.is_json:
        raise RequestRefused(
            "Send the body as JSON, with the header `Content-Type: application/json`.", code="not_json", status=415
        )


def _cross_site(asked: RequestInfo) -> RequestRefused:
    who = ", ".join(asked.all("origin"))[:100]
    sentence = (
        f"A page of {who!r} may not ask this server for that" if who else "It is not clear which page asks for that"
    )
    return RequestRefused(
        f"{sentence}; a page of your own needs a token that names its origin (`checkrein token create --origin`).",
        code="cross_site",
        status=403,
    )


def _is_same(one: Principal, other: Principal) -> bool:
    """Whether they are the same person with the same rights; when these end may have been put off."""
    return (one.name, one.role, one.owner, one.run) == (other.name, other.role, other.owner, other.run)


class OpenStreams:
    """Ends streams soon after the token or session that each began with has ended: all are asked about at once."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._watches: set[Watch] = set()
        self._looking: asyncio.Task[None] | None = None

    def add(self, watch: Watch) -> None:
        self._watches.add(watch)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def discard(self, watch: Watch) -> None:
        self._watches.discard(watch)
        if not self._watches and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            good = await self._good({watch.key for watch in self._watches})
            for watch in [watch for watch in self._watches if watch.key not in good]:
                watch.let_go()

    async def _good(self, keys: set[str]) -> Collection[str]:
        try:
            return await self._keys.valid(keys)
        except Exception as error:  # whatever it is: no stream goes on unwatched
            _log.warning("streams are ended, because nobody can say whether their readers may go on: %s", error)
            return ()  # they come back, and are told why


class Watch:
    """Ends a stream soon after the token or session that it began with has ended, or the application's own login."""

    def __init__(self, guard: Guard, admitted: Admitted) -> None:
        self.scope = CancelScope()
        self._guard = guard
        self._admitted = admitted
        self._has_begun = False
        self._asking: asyncio.Task[None] | None = None

    @property
    def key(self) -> str:
        principal = self._admitted.principal
        return "" if principal is None else principal.key

    def begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        if self._admitted.vouched is not None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_again(self._admitted.vouched))
        elif self.key:
            self._guard.streams.add(self)

    def end(self) -> None:
        self._guard.streams.discard(self)
        if self._asking is not None:
            self._asking.cancel()

    def let_go(self) -> None:
        _log.info("a stream is ended: %s may not read it any more", self._admitted.asked.address)
        self.scope.cancel()

    async def _ask_again(self, request: Request) -> None:
        before = self._admitted.principal
        found = before
        while found is not None and before is not None and _is_same(found, before):
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            try:
                async with asyncio.timeout(ASK_AGAIN_SECONDS):
                    found = await self._guard.vouched_for(request)
            except Exception as error:  # the application's own code, or its database
                _log.warning(
                    "a stream is ended, because the application cannot say whether its reader may go on: %s", error
                )
                found = None
        self.let_go()
