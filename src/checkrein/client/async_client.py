"""`AsyncClient`: the runs of a server, from a program that is async.

It is to a server what `Runtime` is to a store: the same verbs with the same parameters, on handles of runs. What comes
back are the same structs, and what is raised are the same errors with the same codes. Who asked for a verb is whoever
the token belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncGenerator, Collection, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, TypeVar, Unpack, cast

import msgspec

from checkrein.client.async_run import AsyncRunHandle
from checkrein.client.streams import AWAY_SECONDS
from checkrein.client.transport import Request, Transport, address, checked_token, decoded, get, path_of
from checkrein.control.halt import Halted, HaltList, LatchedHalt, Lifted
from checkrein.control.start import IfBusy
from checkrein.control.stops import Stop, Stops
from checkrein.control.verb_requests import Settling
from checkrein.control.view import CallView, ListedRun, RunView
from checkrein.control.worker_roster import AgentCard
from checkrein.core.enums import Status
from checkrein.core.receipts import Receipt
from checkrein.core.verb_specs import SPECS, VerbSpec
from checkrein.errors import MisuseError
from checkrein.server.run_list import RunList

if TYPE_CHECKING:
    from checkrein.server.auth.routes import NewToken, TokenList, TokenView, WhoAmI

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 30.0
RETRIES: Final = 3
WAIT_AT_ONCE: Final = 20.0
"""A request lasts no longer than this: what sits between ends those that do. One that waits for longer is repeated."""
PAGE: Final = 100

TokenRole = Literal["viewer", "controller"]
VerbAnswer = Receipt | Settling | CallView | Halted | Lifted | None
T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """What may be said when a client is made, beside where the server is and who asks."""

    headers: Mapping[str, str] | None
    """With every request, for what stands between."""
    timeout: float
    """How many seconds a request has to be answered, beside those that a verb waits for its receipt."""
    retries: int
    """How often a request is repeated, where that cannot do a thing twice."""
    away_seconds: float
    """A stream goes on when the server comes back within so long."""


class RunFilters(TypedDict, total=False):
    """Which runs: those that fit everything given."""

    status: Collection[Status | str]
    """In one of these."""
    agent: str
    owner: str
    """Of others, for operators."""
    thread: str
    root: str
    """Started by this run, or by what it has started."""
    since: float
    """Begun then or later, in Unix seconds."""
    until: float
    """Begun before."""
    search: str
    """Part of the goal, in whichever case, or the beginning of the id."""
    waiting: bool
    """Only those that wait for a person."""
    before: str
    """The last id of the page before."""
    limit: int
    """How many at most, up to 500."""


class AsyncClient:
    """A Checkrein server. Use it as an async context manager, or close it with `aclose`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        retries: int = RETRIES,
        away_seconds: float = AWAY_SECONDS,
    ) -> None:
        """`token` is one of `checkrein token create`, or the server's own; without it, what CHECKREIN_TOKEN says.

        `headers` go with every request, for what stands between. A request has `timeout` seconds to be answered, beside
        those that a verb waits for its receipt, and is repeated up to `retries` times where that cannot do a thing
        twice. A stream goes on when the server comes back within `away_seconds`.
        """
        token = checked_token(os.environ.get("CHECKREIN_TOKEN", "") if token is None else token)
        self.url = address(url)
        self.away_seconds = away_seconds
        self.transport = Transport(self.url, token, headers or {}, timeout=timeout, retries=retries)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection. Runs are not touched."""
        await self.transport.close()

    # -- the server

    async def health(self) -> dict[str, Any]:
        """What the server says of itself; `status` is `ok` when all is."""
        return await self.ask(get("healthz"), dict[str, Any])

    async def readiness(self) -> dict[str, Any]:
        """Whether the server takes requests: it raises where the store does not answer, or the server is ending."""
        return await self.ask(get("readyz"), dict[str, Any])

    async def whoami(self) -> WhoAmI:
        """Who the token belongs to, and what they may do."""
        return cast("WhoAmI", await self._ask_model(get("api", "whoami"), "WhoAmI"))

    async def agents(self) -> tuple[AgentCard, ...]:
        """The agents that a run can be started of."""
        return (await self.ask(get("api", "agents"), _Agents)).agents

    async def metrics(self) -> str:
        """Numbers for Prometheus; for operators."""
        return (await self.read(get("metrics"))).decode()

    # -- runs

    async def start(
        self,
        agent: str,
        goal: str = "",
        *,
        thread: str | None = None,
        continues: str | None = None,
        if_busy: IfBusy = "queue",
    ) -> AsyncRunHandle:
        """Begin a run, as `Runtime.start` does.

        It is sent again only if nothing of it was taken: when the connection is lost in the middle,
        `ServerUnavailable` says that it is not known whether the run has begun.
        """
        wanted = {"agent": agent, "goal": goal, "thread": thread, "continues": continues, "if_busy": if_busy}
        body = msgspec.json.encode({name: value for name, value in wanted.items() if value is not None})
        request = Request(method="POST", path="/api/runs", body=body, may_repeat=False)
        return self.run((await self.ask(request, RunView)).id)

    def run(self, run: str) -> AsyncRunHandle:
        """A handle on a run. Nothing is asked yet."""
        if not run:
            raise MisuseError("A run has an id; this is none.")
        return AsyncRunHandle(self, run)

    async def runs(self, **filters: Unpack[RunFilters]) -> RunList:
        """A page of the list of runs, newest first."""
        return await self.ask(Request(method="GET", path="/api/runs", query=_query(filters)), RunList)

    async def iter_runs(self, **filters: Unpack[RunFilters]) -> AsyncGenerator[ListedRun, None]:
        """Every run that fits, newest first, page by page; `limit` is how many are asked for at once."""
        filters.setdefault("limit", PAGE)
        while True:
            page = await self.runs(**filters)
            for one in page.runs:
                yield one
            if not page.more or not page.runs:
                return
            filters["before"] = page.runs[-1].id

    def page(self, run: str) -> str:
        """Where a person looks at a run."""
        return self.url + path_of("runs", run)

    # -- for operators

    async def halt(self, scope: str, name: str = "", *, reason: str = "", wait: float = 5.0) -> Halted:
        """The kill switch: latched, until `reset`."""
        answer = await self.verb("halt", scope=scope, name=name, reason=reason, wait=wait)
        assert isinstance(answer, Halted)
        return answer

    async def reset(self, scope: str, name: str = "", *, reason: str = "") -> Lifted:
        """Unlatch the kill switch. Nothing is resumed by it. The client's token must be the server's
        `CHECKREIN_HALT_TOKEN`: an operator's own only halts."""
        answer = await self.verb("reset", scope=scope, name=name, reason=reason)
        assert isinstance(answer, Lifted)
        return answer

    async def stops(
        self, *, reason: str | None = None, flagged: bool = False, verb: str | None = None, limit: int = 100
    ) -> list[Stop]:
        """Every stop that this token may see, newest first: who, why, how fast, and the nearest flag of a watcher."""
        given = {"reason": reason, "flagged": "true" if flagged else None, "verb": verb, "limit": str(limit)}
        query = tuple((name, value) for name, value in given.items() if value is not None)
        return (await self.ask(Request(method="GET", path="/api/stops", query=query), Stops)).stops

    async def halts(self) -> tuple[LatchedHalt, ...]:
        """What is halted: who, why and since when, the oldest first."""
        return (await self.ask(Request(method="GET", path="/api/halts"), HaltList)).halts

    # -- tokens

    async def create_token(
        self, run: str, *, origins: Collection[str] = (), minutes: float = 60, role: TokenRole = "controller"
    ) -> NewToken:
        """A short-lived token for one run. It is said this once."""
        body = msgspec.json.encode({"run": run, "origins": list(origins), "minutes": minutes, "role": role})
        request = Request(method="POST", path="/api/tokens", body=body, may_repeat=False)
        return cast("NewToken", await self._ask_model(request, "NewToken"))

    async def tokens(self) -> TokenList:
        """The tokens that you gave out; an operator sees all."""
        return cast("TokenList", await self._ask_model(get("api", "tokens"), "TokenList"))

    async def revoke_token(self, token_id: str) -> TokenView:
        """End a token at once, with every session and stream that was opened with it."""
        request = Request(method="DELETE", path=path_of("api", "tokens", token_id))
        return cast("TokenView", await self._ask_model(request, "TokenView"))

    # -- any request

    async def verb(self, name: str, /, *target: str, **values: Any) -> VerbAnswer:
        """Ask for a verb of `core.verb_specs` by its name, on a run or on a call of it; what its method answers.

        One that waits longer than a request may last is asked for again with its own id until then.
        """
        spec = SPECS[name]
        if spec.has_request_id and not values.get("request_id"):
            values["request_id"] = uuid.uuid4().hex
        wait = float(values.pop("wait", None) or 0.0)
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            at_once = min(wait, WAIT_AT_ONCE)
            answer = await self._take(spec, target, {**values, "wait": at_once} if spec.wait else values, at_once)
            wait = deadline - asyncio.get_running_loop().time()
            if not isinstance(answer, Settling) or wait <= 0:
                return answer

    async def _take(self, spec: VerbSpec, target: tuple[str, ...], values: dict[str, Any], wait: float) -> VerbAnswer:
        path = path_of("api", *_place(spec, target), spec.path or spec.name)
        request = Request(method="POST", path=path, body=_body(spec, values), wait=wait)
        status, body = await self.transport.ask(request)
        if status == 204:
            return None
        kind: type[VerbAnswer] = CallView
        if spec.answers == "receipt":
            kind = Settling if status == 202 else Receipt
        elif spec.answers == "report":
            kind = Halted if spec.name == "halt" else Lifted
        return decoded(self.transport, body, kind)

    async def ask(self, request: Request, kind: type[T]) -> T:
        """The answer to a request, as the type that it is of."""
        return decoded(self.transport, await self.read(request), kind)

    async def read(self, request: Request) -> bytes:
        """The answer to a request as it comes."""
        return (await self.transport.ask(request))[1]

    async def _ask_model(self, request: Request, name: str) -> Any:
        body = await self.read(request)
        # What a server is made of takes a while to import, and only these few answers are described there.
        kind = getattr(await asyncio.to_thread(import_module, "checkrein.server.auth.routes"), name)
        try:
            return kind.model_validate_json(body)
        except ValueError:
            _log.warning("an answer of the server is no %s", name)
        raise self.transport.malformed()


class _Agents(msgspec.Struct, frozen=True):
    agents: tuple[AgentCard, ...]


def _query(filters: RunFilters) -> tuple[tuple[str, str], ...]:
    given: dict[str, Any] = {**filters}
    statuses = given.pop("status", ())
    query = [("status", str(Status(one))) for one in ([statuses] if isinstance(statuses, str) else statuses)]
    for name, value in given.items():
        if value is not None:
            query.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return tuple(query)


def _place(spec: VerbSpec, target: tuple[str, ...]) -> tuple[str, ...]:
    if len(target) != {"run": 1, "call": 2, "scope": 0}[spec.target]:
        raise MisuseError(f"{spec.name} is about a {spec.target}; it was given {len(target)} ids.")
    return ("runs", target[0], "calls", target[1]) if spec.target == "call" else ("runs", *target) if target else ()


def _body(spec: VerbSpec, values: Mapping[str, Any]) -> bytes:
    """The body of a verb: what HTTP calls its parameters, and only what differs from their defaults."""
    known = {one.name: one for one in spec.parameters}
    said = {
        (known[name].body_name or name if name in known else name): value
        for name, value in values.items()
        if name not in known or known[name].is_required or value != known[name].default
    }
    return msgspec.json.encode({name: value for name, value in said.items() if value is not None})
