"""The guard of a server: who makes a request, whether that still holds, and the routes by which people come in."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

from checkrein.errors import Forbidden, MisuseError, RequestRefused, Unauthorised
from checkrein.journal.refusals import not_found
from checkrein.server.auth.addresses import Origin
from checkrein.server.auth.asked import Asked
from checkrein.server.auth.attempts import Attempts
from checkrein.server.auth.gate import ADMITTED, Admitted, App, Gate
from checkrein.server.auth.keys import Keys
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.principals import Action, Principal
from checkrein.server.auth.secret import TOKEN

if TYPE_CHECKING:
    from fastapi import APIRouter
    from starlette.requests import Request

    from checkrein.journal.contract import Journal

Authorize = Callable[["Request"], Principal | Awaitable[Principal | None] | None]
"""How an application says who makes a request: by its own login, whatever that is."""


class Guard:
    """Give the application its `Gate`, its routes `principal`, and long answers `still_valid`.

    `authorize` is asked where a request carries no token or session of ours. `journal` is needed by the routes that
    give out tokens for a run; `create_app` sets it.
    """

    def __init__(
        self,
        keys: Keys | None = None,
        *,
        policy: Policy | None = None,
        authorize: Authorize | None = None,
        journal: Journal | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.keys = keys or Keys(now=now)
        self.policy = policy or Policy()
        self.authorize = authorize
        self.journal = journal
        self.now = now
        self.attempts = Attempts()

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
            found = self.authorize(request)
            admitted.principal = await found if inspect.isawaitable(found) else found
        if admitted.principal is None:
            raise Unauthorised(
                "This needs a token: send `Authorization: Bearer …`, or open the page with the address that "
                "`checkrein serve` prints."
            )
        return admitted.principal

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

    def still_valid(self, principal: Principal) -> bool:
        """Whether a long answer may go on: the token or session it began with has not expired and was not revoked.

        The gate asks this of every event stream. Takes some 10 µs; raises `StoreUnavailable` like every look-up.
        """
        if principal.expires_at is not None and self.now() >= principal.expires_at:
            return False
        return not principal.key or self.keys.is_valid(principal.key)

    def admitted(self, request: Request) -> Admitted:
        """What the gate found out about this request."""
        found = request.scope.get(ADMITTED)
        if not isinstance(found, Admitted):
            raise MisuseError("A request came in past the gate; add it with app.add_middleware(Gate, guard=guard).")
        return found

    # -- for the gate

    def session(self, asked: Asked) -> Principal | None:
        """Whoever has a session with this browser. The gate has seen to it that a page of ours asks."""
        if asked.is_foreign:
            return None
        # Another server of the same name may have added a cookie: a wrong one must not hide the right one.
        found = (self.keys.find_session(session) for session in asked.sessions)
        return next((principal for principal in found if principal is not None), None)

    def is_ours(self, token: str) -> bool:
        """Whether a wrong token was meant for us, and not for the application's own `authorize`."""
        return self.authorize is None or token.startswith(TOKEN)

    def knows_origin(self, origin: Origin | None) -> bool:
        return origin is not None and self.keys.allows_origin(str(origin))

    def was_wrong(self, asked: Asked, *, is_stop: bool = False) -> None:
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
