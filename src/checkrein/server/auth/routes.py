"""Coming in and going out: sessions of browsers, one-time codes, and tokens for one run."""

from __future__ import annotations

import html
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from checkrein.errors import Forbidden, MisuseError, RequestRefused, Unauthorised, WrongInput
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.policy import configured_origin
from checkrein.server.auth.principals import Action, Principal, Role
from checkrein.server.auth.request import OWN_SITE
from checkrein.server.auth.token_store import Token, opens_sessions

LONGEST_MINUTES: Final = 24 * 60
_SHORT: Final = {"max_length": 512}


class SessionBody(BaseModel):
    token: str = Field(max_length=512, description="A token of `checkrein token create`, or the server's own.")


class TokenBody(BaseModel):
    run: str = Field(max_length=200)
    origins: list[Annotated[str, Field(**_SHORT)]] = Field(default=[], max_length=10)
    minutes: float = Field(default=60, gt=0, le=LONGEST_MINUTES)
    role: Literal["viewer", "controller"] = "controller"


class WhoAmI(BaseModel):
    name: str
    role: Role
    owner: str
    run: str | None
    expires_at: float | None
    may: list[Action]


class TokenView(BaseModel):
    """What may be said about a token; the token itself is said once, to whoever made it."""

    id: str
    name: str
    role: Role
    owner: str
    run: str | None
    origins: list[str]
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None
    revoked_at: float | None


class NewToken(TokenView):
    token: str


class TokenList(BaseModel):
    tokens: list[TokenView]


def make_routes(guard: Guard) -> APIRouter:
    router = APIRouter()
    _add_sessions(router, guard)
    _add_entry(router, guard)
    _add_tokens(router, guard)
    return router


def _add_sessions(router: APIRouter, guard: Guard) -> None:
    @router.post("/session", tags=["access"])
    async def log_in(request: Request, response: Response, body: SessionBody) -> WhoAmI:
        """Exchange a token for a session of this browser. The answer sets its cookie."""
        asked = guard.admitted(request).asked
        principal = await guard.find(body.token)
        if principal is None:
            guard.was_wrong(asked)
            raise Unauthorised("This token is unknown, has expired or was revoked.")
        if not opens_sessions(principal):
            raise Forbidden("A token for one run, for pages of other origins or for resets opens no session.")
        begun = await guard.keys.begin_session(body.token)
        if begun is None:
            raise Unauthorised("This token is unknown, has expired or was revoked.")
        await _end_sessions(guard, asked.sessions)
        session, ends = begun
        response.headers["Set-Cookie"] = asked.set_cookie(session, ends - guard.keys.now())
        return _whoami(principal)

    @router.delete("/session", tags=["access"], status_code=204)
    async def log_out(request: Request) -> Response:
        """End this browser's session."""
        asked = guard.admitted(request).asked
        await _end_sessions(guard, asked.sessions)
        return Response(status_code=204, headers={"Set-Cookie": asked.set_cookie("", 0)})


def _add_entry(router: APIRouter, guard: Guard) -> None:
    @router.get("/enter", tags=["access"], status_code=303, response_class=RedirectResponse, response_model=None)
    async def enter(
        request: Request,
        code: Annotated[str, Query(**_SHORT)],
        run: Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{0,200}$")] = "",
    ) -> Response:
        """Exchange a one-time code for a session of this browser, and go to the page. Nothing stays in the address."""
        admitted = guard.admitted(request)
        asked = admitted.asked
        if asked.one("sec-purpose") or asked.one("purpose"):
            raise RequestRefused("A one-time code is not fetched in advance.", code="cross_site", status=403)
        if asked.fetch_site not in OWN_SITE:
            return _ask_for_a_click(f"{asked.root}/enter?{urlencode({'code': code, 'run': run})}")
        page = f"{asked.root}/runs/{run}" if run else f"{asked.root}/"
        begun = await guard.keys.redeem(code)
        if begun is None:
            if admitted.principal is not None:
                return RedirectResponse(page, 303)  # opened a second time by whoever is in already
            guard.was_wrong(asked)
            return _no_entry()
        await _end_sessions(guard, asked.sessions)
        session, ends = begun
        return RedirectResponse(page, 303, {"Set-Cookie": asked.set_cookie(session, ends - guard.keys.now())})

    @router.get("/api/whoami", tags=["access"])
    async def whoami(request: Request) -> WhoAmI:
        """Who this request is made by, and what they may do."""
        return _whoami(await guard.principal(request))


def _add_tokens(router: APIRouter, guard: Guard) -> None:
    @router.post("/api/tokens", tags=["access"], status_code=201)
    async def create_token(request: Request, body: TokenBody) -> NewToken:
        """A short-lived token for one run, for the bar in a page of your own. It is said this once."""
        principal = await _giver(guard, request)
        owner = await _owner_of(guard, principal, body.run)
        try:
            origins = tuple(dict.fromkeys(configured_origin(origin) for origin in body.origins))
        except WrongInput as error:
            raise RequestRefused(error.message, code="origin_name", status=422) from None
        ends = guard.keys.now() + body.minutes * 60
        token, secret = await guard.keys.create(
            role=Role(body.role),
            name=principal.name,
            owner=owner,
            run=body.run,
            origins=origins,
            expires_at=min(ends, principal.expires_at or ends),
            created_by=principal.name,
            parent=principal.key,
        )
        return NewToken(**_fields(token, TokenView), token=secret)

    @router.get("/api/tokens", tags=["access"])
    async def list_tokens(request: Request) -> TokenList:
        """The tokens that you gave out; an operator sees all."""
        principal = await _giver(guard, request)
        tokens = await guard.keys.tokens()
        return TokenList(
            tokens=[TokenView(**_fields(token, TokenView)) for token in tokens if _is_of(token, principal)]
        )

    @router.delete("/api/tokens/{token_id}", tags=["access"])
    async def revoke_token(request: Request, token_id: str) -> TokenView:
        """End a token at once, with every session and stream that was opened with it."""
        principal = await _giver(guard, request)
        tokens = await guard.keys.tokens()
        known = next((token for token in tokens if token.id == token_id and _is_of(token, principal)), None)
        revoked = await guard.keys.revoke(token_id) if known else None
        if revoked is None:
            raise RequestRefused(f"There is no token {token_id[:40]}.", code="token_not_found", status=404)
        return TokenView(**_fields(revoked, TokenView))


async def _giver(guard: Guard, request: Request) -> Principal:
    """Somebody who may give out tokens: not with a token that was itself given out for one run."""
    principal = await guard.allow(request, Action.STEER)
    if principal.run is not None:
        raise Forbidden("A token for one run gives out no others.")
    return principal


async def _owner_of(guard: Guard, principal: Principal, run: str) -> str:
    if guard.journal is None:
        raise MisuseError("The guard has no journal to look for the run in; create_app gives it one.")
    state = await guard.journal.load(run)
    guard.check_sees(principal, run, owner=state.owner, root=state.root)
    return state.owner


def _is_of(token: Token, principal: Principal) -> bool:
    if principal.role is Role.OPERATOR:
        return True
    return token.run is not None and bool(principal.owner) and token.owner == principal.owner


async def _end_sessions(guard: Guard, sessions: list[str]) -> None:
    for session in sessions:
        if await guard.keys.find_session(session) is not None:
            await guard.keys.end_session(session)


def _whoami(principal: Principal) -> WhoAmI:
    may = [action for action in Action if principal.may(action)]
    return WhoAmI(**_fields(principal, WhoAmI) | {"may": may})


def _fields(known: Token | Principal, told: type[BaseModel]) -> dict[str, Any]:
    """What may be told, of all that is known."""
    return {name: getattr(known, name) for name in told.model_fields}


def _no_entry() -> Response:
    sentence = html.escape(
        "This address was used already, or is older than a few minutes. Have a new one printed with "
        "`checkrein token link`."
    )
    return _page(f"<p>{sentence}</p>", 401)


def _ask_for_a_click(address: str) -> Response:
    """Another site has sent the browser here: it may want to put its own session in the place of the person's."""
    return _page(
        "<p>A page of another site has sent you here, to log this browser in. If that is not what you want, close "
        f'this.</p><p><a href="{html.escape(address)}">Log in</a></p>',
        200,
    )


def _page(body: str, status: int) -> Response:
    return HTMLResponse(f'<!doctype html><html lang="en"><title>Checkrein</title>{body}</html>', status)
