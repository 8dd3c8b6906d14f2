"""`AsyncClient`: the runs of a server, from a program that is async.

It is to a server what `Runtime` is to a store: the same verbs with the same parameters, on handles of runs. What comes
back are the same structs, and what is raised are the same errors with the same codes. Who asked for a verb is whoever
the token belongs to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, TypeVar, Unpack, cast

import msgspec

from checkrein.client import streams
from checkrein.client.streams import AWAY_SECONDS, Item
from checkrein.client.transport import Request, Transport, address, checked_token, decoded, path_of
from checkrein.control.agent_card import AgentCard
from checkrein.control.halt import Halted, HaltList, LatchedHalt, Lifted
from checkrein.control.receipt_waiter import Settling
from checkrein.control.start import IfBusy
from checkrein.control.stops import Stop, Stops
from checkrein.control.view import CallView, ListedRun, RunView
from checkrein.core.enums import TERMINAL, Answer, Status, Undo, When
from checkrein.core.events import RunFinished
from checkrein.core.receipts import Receipt
from checkrein.core.state import Waiting
from checkrein.core.verb_specs import SPECS, VerbSpec
from checkrein.core.wording import ENDED
from checkrein.errors import MisuseError, Refused, RunFailed
from checkrein.journal.base import Recorded
from checkrein.server.run_list import RunList

if TYPE_CHECKING:
    from checkrein.server.auth.routes import NewToken, TokenList, TokenView, WhoAmI

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 30.0
RETRIES: Final = 3
WAIT_AT_ONCE: Final = 20.0
"""A request lasts no longer than this: what sits between ends those that do. One that waits for longer is repeated."""
PAGE: Final = 100

OnWaiting = Callable[[Waiting], None]
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


class AsyncRunHandle:
    """A handle on one run of a server. Letting it go changes nothing: the run goes on."""

    def __init__(self, client: AsyncClient, run: str) -> None:
        self._client = client
        self.id = run

    def __repr__(self) -> str:
        return f"<AsyncRunHandle {self.id}>"

    # -- what it looks like

    async def view(self) -> RunView:
        """The run as it looks now."""
        return await self._client.ask(_get("api", "runs", self.id), RunView)

    async def call(self, call: str) -> CallView:
        """One call, whole."""
        path = path_of("api", "runs", self.id, "calls", call)
        return await self._client.ask(Request(method="GET", path=path), CallView)

    async def file(self, call: str, number: int) -> bytes:
        """A file that a call has published; `number` counts from 0, in `files` of the call."""
        path = path_of("api", "runs", self.id, "calls", call, "files", str(number))
        return await self._client.read(Request(method="GET", path=path))

    async def evidence(self, *, withheld: bool = False) -> bytes:
        """The bundle of the run, for `checkrein verify`. `withheld`: also what was kept back, for operators."""
        return await self._client.read(self._with_withheld("evidence", withheld))

    async def story(self, *, withheld: bool = False) -> str:
        """The story of its stops as a page, the `story.html` of the bundle."""
        return (await self._client.read(self._with_withheld("story", withheld))).decode()

    def _with_withheld(self, what: str, withheld: bool) -> Request:
        query = (("withheld", "true"),) if withheld else ()
        return Request(method="GET", path=path_of("api", "runs", self.id, what), query=query)

    async def fork(self, *, at: int, instruction: str | None = None) -> AsyncRunHandle:
        """A new run that goes on after the finished step `at` of this one, as `Run.fork` has it.

        It is sent again only if nothing of it was taken, as `start` is.
        """
        wanted = {"at": at} if instruction is None else {"at": at, "instruction": instruction}
        path = path_of("api", "runs", self.id, "fork")
        request = Request(method="POST", path=path, body=msgspec.json.encode(wanted), may_repeat=False)
        return self._client.run((await self._client.ask(request, RunView)).id)

    def events(self, *, after: int = 0) -> AsyncGenerator[Item, None]:
        """Every event above `after` and each new one, with the text of calls in flight in between.

        A `Recorded` is an event, a `Chunk` a piece of text. Each comes once and in its place, across lost connections
        and restarts of the server. Ends when nothing more will come by itself. Raises `ServerUnavailable` when the
        server stays away for longer than the client's `away_seconds`. `hash` of a record is empty unless it was read
        from the beginning.
        """
        return streams.events(self._client.transport, self.id, after=after, away_seconds=self._client.away_seconds)

    def live(self) -> AsyncGenerator[RunView, None]:
        """The run as it looks, again whenever that has changed, until it has finished.

        Calls are in brief, with the text of those in flight: what they were given and what they brought, `call` tells.
        """
        return streams.live(self._client.transport, self.id, away_seconds=self._client.away_seconds)

    async def result(self, *, timeout: float | None = None, on_waiting: OnWaiting | None = None) -> Any:
        """Wait for the end and return the result. Raises `RunFailed` if there is none, `TimeoutError` when it is late.

        While the run waits for a person this waits too. It says on stderr what for, or tells `on_waiting`.
        """
        async with asyncio.timeout(timeout):
            return await self._result(on_waiting or self._say)

    async def _result(self, tell: OnWaiting) -> Any:
        view = await self.view()
        told: tuple[Waiting, ...] = ()
        if view.status not in TERMINAL:
            async with aclosing(self.events(after=view.seq)) as items:
                for one in view.waiting:
                    tell(one)
                told = view.waiting
                async for item in items:
                    if not isinstance(item, Recorded):
                        continue
                    if isinstance(item.event, RunFinished):
                        break
                    view = await self._told_of(item, view, told, tell)
                    told = view.waiting if view.seq >= item.seq else told
            view = await self.view()
        if view.status is Status.COMPLETED:
            return view.result
        message = f"Run {self.id} has no result: it {ENDED.get(view.status, view.status)}."
        raise RunFailed(f"{message} {view.error or ''}".rstrip(), run=self.id, status=view.status, error=view.error)

    async def _told_of(self, record: Recorded, view: RunView, told: tuple[Waiting, ...], tell: OnWaiting) -> RunView:
        """The run after an event that may have it wait for a person; what it waits for is told once."""
        if view.seq >= record.seq or not streams.may_begin_to_wait(record.event):
            return view
        view = await self.view()
        for one in view.waiting:
            if one not in told:
                _log.warning("run %s waits for a person: %s", self.id, one.what, extra={"run": self.id})
                tell(one)
        return view

    def _say(self, waiting: Waiting) -> None:
        told = f"Run {self.id} waits for you: {waiting.what}. {waiting.remedy}".rstrip()
        print(f"{told} ({self._client.page(self.id)})", file=sys.stderr, flush=True)

    # -- verbs: what each takes and does is told in `core.verb_specs`
    #
    # Each carries an id, yours or a new one, by which the server knows a repeat: to send it again, which happens by
    # itself when a connection is lost, does nothing twice and brings the same answer.

    async def pause(self, *, reason: str = "", request_id: str = "", wait: float = 5.0) -> Receipt | Settling:
        return await self._receipt("pause", reason=reason, request_id=request_id, wait=wait)

    async def resume(
        self,
        instruction: str | None = None,
        *,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 5.0,
    ) -> Receipt | Settling:
        return await self._receipt(
            "resume",
            instruction=instruction,
            reason=reason,
            request_id=request_id,
            expected_seq=expected_seq,
            wait=wait,
        )

    async def redirect(
        self,
        instruction: str,
        *,
        when: When | str = When.NOW,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 5.0,
    ) -> Receipt | Settling:
        return await self._receipt(
            "redirect",
            instruction=instruction,
            when=When(when),
            reason=reason,
            request_id=request_id,
            expected_seq=expected_seq,
            wait=wait,
        )

    async def cancel(
        self, *, undo: Undo | str = Undo.OPEN, reason: str = "", request_id: str = "", wait: float = 60.0
    ) -> Receipt | Settling:
        return await self._receipt("cancel", undo=Undo(undo), reason=reason, request_id=request_id, wait=wait)

    async def ask(
        self,
        question: str,
        *,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 60.0,
    ) -> str:
        """The answer. Raises `Refused` when there is none by then."""
        receipt = await self._receipt(
            "ask", question=question, reason=reason, request_id=request_id, expected_seq=expected_seq, wait=wait
        )
        if isinstance(receipt, Receipt) and receipt.answer is not None:
            return receipt.answer
        why = f"it still waits for {receipt.waiting_for}" if isinstance(receipt, Settling) else "nobody gave one"
        raise Refused(f"The question to run {self.id} got no answer: {why}.", code="no_answer", run=self.id)

    async def add_reason(self, reason: str, *, note: str = "", request_id: str = "") -> None:
        """Say why it was stopped, also afterwards."""
        await self._client.verb("add_reason", self.id, reason=reason, note=note, request_id=request_id)

    async def approve(
        self,
        call: str,
        *,
        note: str = "",
        fingerprint: str = "",
        arguments: dict[str, Any] | None = None,
        always: bool = False,
        request_id: str = "",
    ) -> CallView:
        """Let it be made: as it was shown (`fingerprint`), with other `arguments`, and perhaps `always` in this run."""
        return await self._decided(
            "approve",
            call,
            note=note,
            fingerprint=fingerprint,
            arguments=arguments,
            always=always,
            request_id=request_id,
        )

    async def deny(self, call: str, *, note: str = "", request_id: str = "") -> CallView:
        return await self._decided("deny", call, note=note, request_id=request_id)

    async def resolve(
        self, call: str, answer: Answer | str, *, result: Any = None, note: str = "", request_id: str = ""
    ) -> CallView:
        return await self._decided(
            "resolve", call, answer=Answer(answer), result=result, note=note, request_id=request_id
        )

    async def abort(
        self, call: str, *, reason: str = "", request_id: str = "", wait: float = 5.0
    ) -> Receipt | Settling:
        return await self._receipt("abort", call, reason=reason, request_id=request_id, wait=wait)

    async def retry_undo(self, effect: str, *, request_id: str = "") -> CallView:
        return await self._decided("retry_undo", effect, request_id=request_id)

    async def check(self, call: str, *, request_id: str = "") -> CallView:
        """Have the tool of a call in doubt asked once more whether it happened."""
        return await self._decided("check", call, request_id=request_id)

    async def _receipt(self, name: str, *call: str, **values: Any) -> Receipt | Settling:
        answer = await self._client.verb(name, self.id, *call, **values)
        assert isinstance(answer, Receipt | Settling)
        return answer

    async def _decided(self, name: str, *call: str, **values: Any) -> CallView:
        answer = await self._client.verb(name, self.id, *call, **values)
        assert isinstance(answer, CallView)
        return answer


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
        return await self.ask(_get("healthz"), dict[str, Any])

    async def readiness(self) -> dict[str, Any]:
        """Whether the server takes requests: it raises where the store does not answer, or the server is ending."""
        return await self.ask(_get("readyz"), dict[str, Any])

    async def whoami(self) -> WhoAmI:
        """Who the token belongs to, and what they may do."""
        return cast("WhoAmI", await self._ask_model(_get("api", "whoami"), "WhoAmI"))

    async def agents(self) -> tuple[AgentCard, ...]:
        """The agents that a run can be started of."""
        return (await self.ask(_get("api", "agents"), _Agents)).agents

    async def metrics(self) -> str:
        """Numbers for Prometheus; for operators."""
        return (await self.read(_get("metrics"))).decode()

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
        return cast("TokenList", await self._ask_model(_get("api", "tokens"), "TokenList"))

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


def _get(*parts: str) -> Request:
    return Request(method="GET", path=path_of(*parts))


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
