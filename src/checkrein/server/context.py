"""What every route holds in its hands: the backend, the guard and the hub, and the two questions about a run.

May they see it? Otherwise it does not exist. May they do this to it? Otherwise they are told so.
"""

from __future__ import annotations

from typing import Protocol

import msgspec
from fastapi import APIRouter, Request
from starlette.types import ASGIApp, Scope

from checkrein.control.control import Control
from checkrein.errors import Forbidden
from checkrein.journal import refusals
from checkrein.journal.base import Journal
from checkrein.server.auth.principals import Action, Principal
from checkrein.server.backend import Backend
from checkrein.server.streaming.hub import Facts, Hub

_NEEDS = {
    Action.SEE: "to see runs",
    Action.START: "to start runs",
    Action.STEER: "to steer runs",
    Action.OPERATE: "of an operator",
    Action.RESET: "to reset",
}


_RESET_REMEDY = (
    " Over HTTP only the token has it that the server was given as CHECKREIN_HALT_TOKEN; at the store "
    "`checkrein reset` needs none."
)


class Guarding(Protocol):
    """What the application needs of a guard."""

    journal: Journal | None
    """Set by `create_app`."""

    @property
    def routes(self) -> APIRouter:
        """Its own routes: sessions, tokens, who am I."""
        ...

    async def principal(self, request: Request) -> Principal:
        """Who asks. Raises `Unauthorised`."""
        ...

    async def knows(self, scope: Scope) -> bool:
        """Whether a request comes with a token or session that is good; also where only the application can say."""
        ...

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """`app` behind everything that a request must pass before it is heard at all."""
        ...


class AuthorisedRun(msgspec.Struct, frozen=True):
    """A run that somebody may see, and who they are."""

    facts: Facts
    by: Principal


class ServerContext:
    """One server."""

    def __init__(self, backend: Backend, guard: Guarding, hub: Hub) -> None:
        self.backend = backend
        self.guard = guard
        self.hub = hub

    @property
    def control(self) -> Control:
        return self.backend.control

    async def principal(self, request: Request, action: Action = Action.SEE) -> Principal:
        """Who asks, if they may do this at all. Raises `Unauthorised` or `Forbidden`."""
        principal = await self.guard.principal(request)
        check(principal, action)
        return principal

    async def see(self, request: Request, run: str, action: Action = Action.SEE) -> AuthorisedRun:
        """The run, if whoever asks may see it and do this to it.

        Raises `RunNotFound`, in the same words, for a run that there is not and for one they may not see.
        """
        principal = await self.guard.principal(request)
        facts = await self.facts(principal, run)
        check(principal, action)
        return AuthorisedRun(facts, principal)

    async def facts(self, principal: Principal, run: str) -> Facts:
        facts = await self.hub.facts(run)
        if not principal.may_see(facts.owner, facts.run, facts.root):
            raise refusals.not_found(run)
        return facts


def check(principal: Principal, action: Action) -> None:
    if not principal.may(action):
        remedy = _RESET_REMEDY if action is Action.RESET else ""
        raise Forbidden(
            f"This needs the right {_NEEDS[action]}, which {principal.name} ({principal.role}) has not.{remedy}"
        )
