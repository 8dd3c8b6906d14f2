"""The guard of a server: who makes a request, whether that still holds, and the routes by which people come in."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from checkrein.errors import Forbidden, MisuseError, RequestRefused, StoreUnavailable, Unauthorised
from checkrein.journal.refusals import not_found
from checkrein.server.auth.gate import ADMITTED, Admitted, App, Gate, OpenStreams
from checkrein.server.auth.halt_token import HALTER
from checkrein.server.auth.key_store import FileKeyStore, KeyStore
from checkrein.server.auth.policy import Origin, Policy
from checkrein.server.auth.principals import Action, Principal
from checkrein.server.auth.request import Attempts, RequestInfo
from checkrein.server.auth.token_store import TOKEN, Keys, digest, is_equal

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.requests import Request

    from checkrein.journal.base import Journal

_log = logging.getLogger(__name__)

Authorize = Callable[["Request"], Principal | Awaitable[Principal | None] | None]
"""How an application says who makes a request: by its own login, whatever that is."""


class Guard:
    """Give the application its `Gate`, and its routes `principal`.

    `authorize` is asked where a request carries no token or session of ours. `journal` is needed by the routes that
    give out tokens for a run; `create_app` sets it. `halt_token` is the one that resets; without it none does.
    """

    def __init__(
        self,
        keys: KeyStore | None = None,
        *,
        policy: Policy | None = None,
        authorize: Authorize | None = None,
        journal: Journal | None = None,
        halt_token: str = "",
    ) -> None:
        self.keys: KeyStore = keys or FileKeyStore(Keys())
        self.policy = policy or Policy()
        self.authorize = authorize
        self.journal = journal
        self._halt_token = digest(halt_token) if halt_token else None
        self.attempts = Attempts()
        self.streams = OpenStreams(self.keys)

    def wrap(self, app: App) -> Gate:
        """The application behind the gate. The same as `app.add_middleware(Gate, guard=guard)`."""
        return Gate(app, self)

    @cached_property
    def routes(self) -> APIRouter:
        """Coming in and going out: `/session`, `/enter`, `/api/whoami` and `/api/tokens`."""
        from checkrein.server.auth.routes import make_routes

        return make_routes(self)

    # -- who

    async def principal(self, request: Request) -> Principal:
        """Whoever makes this request. Raises `Unauthorised`."""
        admitted = self.admitted(request)
        if admitted.principal is None and self.authorize is not None:
            admitted.principal = await self.vouched_for(request)
            admitted.vouched = request
        if admitted.principal is None:
            raise Unauthorised(
                "This needs a token: send `Authorization: Bearer …`, or open the page with the address that "
                "`checkrein serve` prints."
            )
        return admitted.principal

    async def vouched_for(self, request: Request) -> Principal | None:
        """Whom the application takes for the maker of this request, now. It is asked again while a stream is open."""
        if self.authorize is None:
            return None
        found = self.authorize(request)
        return await found if inspect.isawaitable(found) else found

    async def allow(self, request: Request, action: Action) -> Principal:
        """Whoever makes this request, who may do this. Raises `Unauthorised` or `Forbidden`."""
        principal = await self.principal(request)
        self.check(principal, action)
        return principal

    def check(self, principal: Principal, action: Action) -> None:
        """Raise `Forbidden` where the role does not allow this."""
        if not principal.may(action):
            scope = f" for run {principal.run}" if principal.run is not None else ""
            raise Forbidden(f"A {principal.role.value}'s token{scope} does not allow this ({action.value}).")

    def check_sees(self, principal: Principal, run: str, *, owner: str, root: str | None) -> None:
        """Raise for a run that they may not see exactly what is raised for one that there is not."""
        if not principal.may_see(owner, run, root):
            raise not_found(run)

    def admitted(self, request: Request) -> Admitted:
        """What the gate found out about this request."""
        found = request.scope.get(ADMITTED)
        if not isinstance(found, Admitted):
            raise MisuseError("A request came in past the gate; add it with app.add_middleware(Gate, guard=guard).")
        return found

    # -- for the gate

    async def find(self, token: str) -> Principal | None:
        """Whoever bears this token now. The one that resets needs no store to be known."""
        if self._halt_token is not None and is_equal(self._halt_token, digest(token)):
            return HALTER
        return await self.keys.find(token)

    async def session(self, asked: RequestInfo) -> Principal | None:
        """Whoever has a session with this browser. The gate has seen to it that a page of ours asks."""
        if asked.is_foreign:
            return None
        # Another server of the same name may have added a cookie: a wrong one must not hide the right one.
        for session in asked.sessions:
            if (principal := await self.keys.find_session(session)) is not None:
                return principal
        return None

    async def knows(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request comes with a token or session that is good; also where only the application can say.

        It is not let in by that: this is for those who count before they look closer.
        """
        if self.authorize is not None:
            return True
        asked = RequestInfo(scope, self.policy)
        try:
            if asked.bearer is not None:
                return await self.find(asked.bearer) is not None
            return await self.session(asked) is not None
        except StoreUnavailable as error:
            _log.warning("nobody can say whether a reader is known: %s", error)
            return True

    def is_ours(self, token: str) -> bool:
        """Whether a wrong token was meant for us, and not for the application's own `authorize`."""
        return self.authorize is None or token.startswith(TOKEN)

    async def knows_origin(self, origin: Origin | None) -> bool:
        return origin is not None and await self.keys.allows_origin(str(origin))

    def was_wrong(self, asked: RequestInfo, *, is_stop: bool = False) -> None:
        """Count a wrong token or code. Raises where there were very many, except about a stop."""
        seconds = self.attempts.was_wrong(asked.address)
        if seconds and not is_stop:
            raise RequestRefused(
                f"Very many wrong tokens came from {asked.address}; the next one is looked at as ever, but wait "
                f"{seconds:.0f} s before trying another wrong one.",
                code="too_many_attempts",
                status=429,
                headers={"Retry-After": str(int(seconds) + 1)},
            )
