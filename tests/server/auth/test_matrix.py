"""Every route × every role × own and other runs × valid, expired, revoked and no tokens, against the real application.

The routes are read from the application: one without a rule here fails the test. What is refused leaves no trace in the
journal; somebody else's run is answered, to the byte, like one that does not exist.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI

from checkrein.control.control import Control
from checkrein.control.fork import ForkRun
from checkrein.control.start import StartRun
from checkrein.control.worker_roster import AgentCard
from checkrein.core.enums import Status
from checkrein.core.events import RunCreated
from checkrein.core.state import State
from checkrein.journal import Journal, MemoryJournal
from checkrein.journal.evidence import Withheld
from checkrein.processes.identity import this_process
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.principals import Action, Principal, Role
from checkrein.server.auth.token_store import Keys
from tests.server.auth.asking import OWN, Reply, ask
from tests.server.auth.conftest import SERVER_TOKEN, Clock

pytestmark = pytest.mark.anyio


class Open(Enum):
    """Routes that are not about a right of somebody's."""

    TO_ALL = auto()
    """There is nothing in it that is anybody's."""
    TO_WHOEVER_COMES_IN = auto()
    """Every valid token; what it shows is only what they may see."""
    TO_WHOEVER_GIVES_OUT_TOKENS = auto()
    """Those who steer, and not with a token for one run."""


class Rule(NamedTuple):
    needs: Action | Open
    body: Any = None


HALT_TOKEN = "ckr_" + "h" * 40
W = {"wait": 0}
# fmt: off
RULES: Mapping[tuple[str, str], Rule] = {
    ("GET",    "/"):                                          Rule(Open.TO_ALL),
    ("GET",    "/runs/{run}"):                                Rule(Open.TO_ALL),   # the page itself, without the run
    ("GET",    "/ui/{name:path}"):                            Rule(Open.TO_ALL),
    ("GET",    "/favicon.ico"):                               Rule(Open.TO_ALL),
    ("GET",    "/{path:path}"):                               Rule(Open.TO_ALL),   # for people: there is nothing here
    ("GET",    "/api/openapi.json"):                          Rule(Open.TO_ALL),
    ("GET",    "/healthz"):                                   Rule(Open.TO_ALL),
    ("GET",    "/readyz"):                                    Rule(Open.TO_ALL),
    ("GET",    "/enter"):                                     Rule(Open.TO_ALL),
    ("POST",   "/session"):                                   Rule(Open.TO_ALL),
    ("DELETE", "/session"):                                   Rule(Open.TO_ALL),
    ("GET",    "/metrics"):                                   Rule(Action.OPERATE),
    ("GET",    "/api/whoami"):                                Rule(Open.TO_WHOEVER_COMES_IN),
    ("GET",    "/api/agents"):                                Rule(Open.TO_WHOEVER_COMES_IN),
    ("GET",    "/api/runs"):                                  Rule(Open.TO_WHOEVER_COMES_IN),
    ("POST",   "/api/runs"):                                  Rule(Action.START, {"agent": "churn", "goal": "Who?"}),
    ("GET",    "/api/runs/{run}"):                            Rule(Action.SEE),
    ("POST",   "/api/runs/{run}/fork"):                       Rule(Action.START, {"at": 1}),
    ("GET",    "/api/runs/{run}/events"):                     Rule(Action.SEE),
    ("GET",    "/api/runs/{run}/live"):                       Rule(Action.SEE),
    ("GET",    "/stops"):                                     Rule(Open.TO_ALL),   # the page itself, without a stop
    ("GET",    "/api/stops"):                                 Rule(Open.TO_WHOEVER_COMES_IN),
    ("GET",    "/api/runs/{run}/evidence"):                   Rule(Action.STEER),  # viewers never
    ("GET",    "/api/runs/{run}/story"):                      Rule(Action.STEER),
    ("GET",    "/api/runs/{run}/calls/{call}"):               Rule(Action.SEE),
    ("GET",    "/api/runs/{run}/calls/{call}/files/{number}"): Rule(Action.SEE),
    ("POST",   "/api/runs/{run}/pause"):                      Rule(Action.STEER, W),
    ("POST",   "/api/runs/{run}/resume"):                     Rule(Action.STEER, W),
    ("POST",   "/api/runs/{run}/redirect"):                   Rule(Action.STEER, {"instruction": "x", **W}),
    ("POST",   "/api/runs/{run}/cancel"):                     Rule(Action.STEER, W),
    ("POST",   "/api/runs/{run}/ask"):                        Rule(Action.STEER, {"question": "x", **W}),
    ("POST",   "/api/runs/{run}/reason"):                     Rule(Action.STEER, {"reason": "x"}),
    ("POST",   "/api/runs/{run}/calls/{call}/approve"):       Rule(Action.STEER, {}),
    ("POST",   "/api/runs/{run}/calls/{call}/deny"):          Rule(Action.STEER, {}),
    ("POST",   "/api/runs/{run}/calls/{call}/resolve"):       Rule(Action.STEER, {"outcome": "happened"}),
    ("POST",   "/api/runs/{run}/calls/{call}/check"):         Rule(Action.STEER, {}),
    ("POST",   "/api/runs/{run}/calls/{call}/abort"):         Rule(Action.STEER, W),
    ("POST",   "/api/runs/{run}/calls/{call}/retry_undo"):    Rule(Action.STEER, {}),
    ("GET",    "/api/halts"):                                 Rule(Open.TO_WHOEVER_COMES_IN),
    ("POST",   "/api/halt"):                                  Rule(Action.OPERATE, {"scope": "all", **W}),
    ("POST",   "/api/reset"):                                 Rule(Action.RESET,   {"scope": "all"}),
    ("GET",    "/api/tokens"):                                Rule(Open.TO_WHOEVER_GIVES_OUT_TOKENS),
    ("POST",   "/api/tokens"):                                Rule(Open.TO_WHOEVER_GIVES_OUT_TOKENS, {"run": "{run}"}),
    ("DELETE", "/api/tokens/{token_id}"):                     Rule(Open.TO_WHOEVER_GIVES_OUT_TOKENS),
}
# fmt: on
"""What each route needs. Where a rule has no route yet, nothing is tested; where a route has no rule, a test fails."""


class Bench:
    """A backend without drivers: runs are queued, and every verb on one is real."""

    is_ending = False
    signing_key = None
    store = "memory:"

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.control = Control(journal, this_process())
        self._made = 0

    def now(self) -> float:
        return time.time()

    def agents(self) -> Mapping[str, AgentCard]:
        return {"churn": AgentCard(name="churn")}

    async def know_agents(self) -> bool:
        return True

    async def workers_wanted(self, states: Collection[State]) -> dict[str, str]:
        return {}

    async def fork(self, wanted: ForkRun) -> str:
        owner = (await self.journal.load(wanted.run)).owner
        return await self.start(StartRun(agent="a", goal="go on", owner=owner))

    async def start(self, wanted: StartRun) -> str:
        self._made += 1
        run, agent, goal, owner = f"r-{wanted.owner}-{self._made}", wanted.agent, wanted.goal, wanted.owner
        await self.journal.create(
            RunCreated(id=f"e-{run}", at=self.now(), run=run, agent=agent, goal=goal, thread=run, owner=owner)
        )
        return run

    def listen(self, run: str, listener: Any) -> Any:
        return lambda: None


def routes_of(app: Any) -> Iterator[tuple[str, str]]:
    """Every method and path, whoever added it and however deep."""
    for route in app.routes:
        inner = getattr(route, "original_router", None) or getattr(route, "app", None)
        if hasattr(route, "original_router") or not hasattr(route, "methods"):
            assert inner is not None, f"a route of an unknown kind: {route!r}"
            yield from routes_of(inner)
        else:
            yield from ((method, route.path) for method in sorted(route.methods or ()) if method != "HEAD")


def real_app(journal: Journal, guard: Guard) -> FastAPI:
    return create_app(Bench(journal), guard)


ROUTES = sorted(set(routes_of(real_app(MemoryJournal(), Guard()))), key=lambda one: (one[1], one[0]))


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_every_route_has_a_rule(route: tuple[str, str]) -> None:
    assert route in RULES, f"say in RULES who may use {' '.join(route)}"


def test_the_routes_of_the_design_are_among_them() -> None:
    paths = {path for _, path in ROUTES}

    assert {"/api/runs", "/api/runs/{run}/live", "/api/runs/{run}/cancel", "/api/halt", "/healthz", "/metrics"} <= paths


# -- whoever may ask


class Who(NamedTuple):
    role: Role
    is_for_one_run: bool = False

    def __str__(self) -> str:
        return f"{self.role.value}{' for one run' if self.is_for_one_run else ''}"


EVERYBODY = [*(Who(role) for role in Role), Who(Role.VIEWER, True), Who(Role.CONTROLLER, True)]


class Scene:
    """The application, its journal, and people with tokens."""

    def __init__(self, journal: Journal, keys: Keys, guard: Guard, clock: Clock) -> None:
        self.journal, self.keys, self.clock = journal, keys, clock
        self.app = real_app(journal, guard)
        self.bench: Bench = self.app.state.site.backend

    async def run_of(self, owner: str) -> str:
        return await self.bench.start(StartRun(agent="churn", goal="Who?", owner=owner))

    def token(self, who: Who, run: str) -> tuple[str, str]:
        token, secret = self.keys.create(
            role=who.role,
            owner="" if who.role is Role.OPERATOR else "ann",
            run=run if who.is_for_one_run else None,
            expires_at=self.clock() + 60,
        )
        return token.id, secret

    async def ask(self, route: tuple[str, str], run: str, **options: Any) -> Reply:
        method, path = route
        where = path.replace(":path}", "}").format(
            run=run, call="c1", token_id="t-1", name="index.html", number=0, path="x"
        )
        body = RULES[route].body
        if body is not None:
            body = {name: run if value == "{run}" else value for name, value in body.items()}
        return await ask(self.app, method, where, json_body=body, **options)

    async def trace(self) -> Any:
        """Everything that a verb could change."""
        rows = await self.journal.runs(limit=1000)
        return [(row.id, row.seq) for row in rows], await self.journal.fences(), len(self.keys.tokens())


@pytest.fixture
async def scene(keys: Keys, guard: Guard, clock: Clock) -> AsyncIterator[Scene]:
    async with MemoryJournal() as journal:
        opened = Scene(journal, keys, guard, clock)
        yield opened
        await opened.app.state.hub.close()


def is_let_through(reply: Reply) -> bool:
    """It was not turned away for who asked; what became of it is another matter."""
    if reply.status < 400:
        return True
    return reply.code not in ("unauthorised", "forbidden", "run_not_found", "cross_site", "wrong_host", "internal")


def may(who: Who, needs: Action | Open) -> bool:
    """What the table of roles says, in words of this test: not what the code under test would say."""
    if needs in (Open.TO_ALL, Open.TO_WHOEVER_COMES_IN, Action.SEE):
        return True
    if needs is Open.TO_WHOEVER_GIVES_OUT_TOKENS or needs is Action.START:
        return who.role is not Role.VIEWER and not who.is_for_one_run
    if needs is Action.STEER:
        return who.role is not Role.VIEWER
    return needs is Action.OPERATE and who.role is Role.OPERATOR  # no role resets


@pytest.mark.parametrize("who", EVERYBODY, ids=str)
@pytest.mark.parametrize("route", [route for route in ROUTES if route in RULES], ids=" ".join)
async def test_who_may_use_which_route(scene: Scene, route: tuple[str, str], who: Who) -> None:
    """P7 D16: the person with the right gets through to every verb, nobody else to any."""
    needs = RULES[route].needs
    mine, others = await scene.run_of("ann"), await scene.run_of("bob")
    token_id, secret = scene.token(who, mine)
    is_about_a_run = ("{run}" in route[1] and isinstance(needs, Action)) or route == ("POST", "/api/tokens")

    # Somebody else's run, and one that there is not.
    if is_about_a_run and who.role is not Role.OPERATOR and (may(who, needs) or isinstance(needs, Action)):
        before = await scene.trace()
        hidden, unknown = await scene.ask(route, others, token=secret), await scene.ask(route, "r-none", token=secret)
        assert (hidden.status, hidden.code) == (404, "run_not_found")
        assert hidden.body.replace(others.encode(), b"") == unknown.body.replace(b"r-none", b"")
        assert {name for name, _ in hidden.headers} == {name for name, _ in unknown.headers}
        assert await scene.trace() == before
    elif is_about_a_run and who.role is Role.OPERATOR:
        assert is_let_through(await scene.ask(route, others, token=secret))

    # Their own.
    before = await scene.trace()
    reply = await scene.ask(route, mine, token=secret)
    if may(who, needs):
        assert is_let_through(reply), (reply.status, reply.body)
        assert reply.status < 500
    else:
        assert (reply.status, reply.code) == (403, "forbidden")
        assert await scene.trace() == before

    # Without a token, and with one that is no longer good.
    before = await scene.trace()
    nobody = await scene.ask(route, mine)
    wrong = await scene.ask(route, mine, token="ckr_wrong")
    scene.clock.pass_seconds(60)
    expired = await scene.ask(route, mine, token=secret)
    scene.clock.pass_seconds(-60)
    assert is_let_through(await scene.ask(route, mine, token=secret)) is may(who, needs), "it was not the clock"
    before = await scene.trace()
    scene.keys.revoke(token_id)
    revoked = await scene.ask(route, mine, token=secret)
    for refused in (nobody, wrong, expired, revoked):
        if needs is Open.TO_ALL:
            assert is_let_through(refused) or route[1] in ("/session", "/enter")
        else:
            assert (refused.status, refused.code) == (401, "unauthorised")
            assert refused.one("www-authenticate") == "Bearer"
    assert await scene.trace() == before


async def test_the_token_that_resets_halts_and_resets_and_nothing_else(keys: Keys, clock: Clock) -> None:
    """D35: the operator's ordinary token only halts, the server's own included."""
    async with MemoryJournal() as journal:
        scene = Scene(journal, keys, Guard(FileKeyStore(keys), halt_token=HALT_TOKEN), clock)
        mine = await scene.run_of("ann")
        for route in ROUTES:
            needs = RULES[route].needs
            reply = await scene.ask(route, mine, token=HALT_TOKEN)
            is_its_own = route[1] in ("/api/halts", "/api/whoami") or needs in (Action.OPERATE, Action.RESET)
            is_about_a_run = "{run}" in route[1] and isinstance(needs, Action)
            if needs is not Open.TO_ALL:
                assert is_let_through(reply) is is_its_own, (route, reply.status, reply.body)
                assert is_its_own or reply.code == ("run_not_found" if is_about_a_run else "forbidden")
        await scene.ask(("POST", "/api/halt"), mine, token=SERVER_TOKEN)
        for token in (SERVER_TOKEN, scene.token(Who(Role.OPERATOR), mine)[1]):
            reply = await scene.ask(("POST", "/api/reset"), mine, token=token)
            assert (reply.status, reply.code) == (403, "forbidden")
            assert "CHECKREIN_HALT_TOKEN" in reply.json["message"]
            assert "`checkrein reset`" in reply.json["message"]
        assert len(await journal.halts()) == 1
        lifted = await scene.ask(("POST", "/api/reset"), mine, token=HALT_TOKEN)
        assert (lifted.json["was_latched"], len(await journal.halts())) == (True, 0)
        await scene.app.state.hub.close()


async def test_a_server_without_such_a_token_resets_for_nobody(scene: Scene) -> None:
    for token in (SERVER_TOKEN, HALT_TOKEN, ""):
        reply = await scene.ask(("POST", "/api/reset"), "", token=token)
        assert reply.status in (401, 403)


async def test_the_token_that_resets_opens_no_session(keys: Keys, clock: Clock) -> None:
    """A page is left open on a desk."""
    async with MemoryJournal() as journal:
        scene = Scene(journal, keys, Guard(FileKeyStore(keys), halt_token=HALT_TOKEN), clock)
        reply = await ask(scene.app, "POST", "/session", json_body={"token": HALT_TOKEN}, origin=OWN)
        assert (reply.status, reply.code) == (403, "forbidden")
        await scene.app.state.hub.close()


@pytest.mark.parametrize("who", [Who(role) for role in Role], ids=str)
async def test_a_session_may_what_its_token_may(scene: Scene, who: Who) -> None:
    mine, others = await scene.run_of("ann"), await scene.run_of("bob")
    _, secret = scene.token(who, mine)
    session, _ = scene.keys.begin_session(secret) or ("", 0)
    cookie = f"checkrein_8420={session}"

    for route in ROUTES:
        needs = RULES[route].needs
        if isinstance(needs, Action) and "{run}" in route[1]:
            assert is_let_through(await scene.ask(route, mine, cookie=cookie, origin=OWN)) is may(who, needs)
            if who.role is not Role.OPERATOR:
                assert (await scene.ask(route, others, cookie=cookie, origin=OWN)).code == "run_not_found"


async def test_a_list_shows_everybody_only_what_they_may_see(scene: Scene) -> None:
    mine, others = await scene.run_of("ann"), await scene.run_of("bob")
    nobodys = await scene.run_of("")
    another = await scene.run_of("ann")
    seen = {}
    for who in EVERYBODY:
        _, secret = scene.token(who, mine)
        reply = await scene.ask(("GET", "/api/runs"), mine, token=secret)
        seen[str(who)] = {row["id"] for row in reply.json["runs"]}

    assert seen["operator"] == {mine, others, nobodys, another}
    assert seen["viewer"] == seen["controller"] == {mine, another}
    assert seen["viewer for one run"] == seen["controller for one run"] == {mine}


async def test_withheld_text_is_for_operators_alone(scene: Scene) -> None:
    """D13: whoever steers a run gets its evidence, without what a watcher kept from being shown."""
    mine = await scene.run_of("ann")
    text = "the discount code is WINTER-44"
    await scene.journal.evidence.write_withheld(mine, Withheld("c1", "f1", 0, text))

    for path in ("evidence", "story"):
        for who in EVERYBODY:
            _, secret = scene.token(who, mine)
            plain = await ask(scene.app, "GET", f"/api/runs/{mine}/{path}", token=secret)
            whole = await ask(scene.app, "GET", f"/api/runs/{mine}/{path}?withheld=true", token=secret)
            assert plain.status == (403 if who.role is Role.VIEWER else 200)
            assert whole.status == (200 if who.role is Role.OPERATOR else 403)
            assert text.encode() not in plain.body
            assert (text.encode() in whole.body) is (who.role is Role.OPERATOR and path == "evidence")


async def test_a_list_of_stops_shows_everybody_only_what_they_may_see(scene: Scene) -> None:
    mine, others = await scene.run_of("ann"), await scene.run_of("bob")
    for run in (mine, others):
        await scene.bench.control.cancel(run, by="ann", reason="=enough", wait=30)
    seen = {}
    for who in EVERYBODY:
        _, hers = scene.token(who, mine)
        reply = await ask(scene.app, "GET", "/api/stops", token=hers)
        seen[str(who)] = {stop["run"] for stop in reply.json["stops"]}
    _, secret = scene.token(Who(Role.CONTROLLER), mine)
    table = await ask(scene.app, "GET", "/api/stops?format=csv&reason=enough&verb=cancel", token=secret)

    assert seen.pop("operator") == {mine, others}
    assert set(map(frozenset, seen.values())) == {frozenset({mine})}
    assert table.body.decode().count("'=enough") == 1
    assert (await ask(scene.app, "GET", "/api/stops?verb=explode", token=secret)).status == 422
    none = await ask(scene.app, "GET", "/api/stops?flagged=true", token=secret)
    assert none.json == {"stops": [], "damaged": {}}


async def test_a_cancel_by_somebody_with_the_right_does_cancel(scene: Scene) -> None:
    """D1: what the matrix calls let through is the verb itself."""
    mine = await scene.run_of("ann")
    _, secret = scene.token(Who(Role.CONTROLLER, True), mine)

    reply = await ask(scene.app, "POST", f"/api/runs/{mine}/cancel", token=secret, json_body={"wait": 30})

    assert reply.status == 200, reply.body
    assert (await scene.journal.load(mine)).status is Status.CANCELLED


async def test_who_is_logged_as_having_asked_is_who_the_token_says(scene: Scene) -> None:
    """D14: and not what a body claims."""
    mine = await scene.run_of("ann")
    _, secret = scene.keys.create(role=Role.CONTROLLER, owner="ann", name="ann on her phone")

    claimed = {"wait": 30, "by": "somebody else"}
    assert (await ask(scene.app, "POST", f"/api/runs/{mine}/cancel", token=secret, json_body=claimed)).status == 422
    reply = await ask(scene.app, "POST", f"/api/runs/{mine}/cancel", token=secret, json_body={"wait": 30})

    assert reply.json["by"] == "ann on her phone"


async def test_a_principal_of_an_application_is_held_to_the_same_rules(clock: Clock) -> None:
    def authorize(request: Any) -> Principal | None:
        return Principal(name="ann", role=Role.VIEWER, owner="ann") if "x-ann" in request.headers else None

    async with MemoryJournal() as journal:
        app = real_app(journal, Guard(authorize=authorize))
        mine, others = await app.state.site.backend.start(StartRun(agent="churn", goal="?", owner="ann")), "r-bob"

        assert (await ask(app, "GET", f"/api/runs/{mine}", {"x-ann": "1"})).status == 200
        assert (await ask(app, "POST", f"/api/runs/{mine}/pause", {"x-ann": "1"})).status == 403
        assert (await ask(app, "GET", f"/api/runs/{others}", {"x-ann": "1"})).status == 404
        assert (await ask(app, "GET", f"/api/runs/{mine}")).status == 401
        await app.state.hub.close()
