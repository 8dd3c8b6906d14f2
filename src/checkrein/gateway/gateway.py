"""The gateway: model providers on loopback, for a program that knows nothing of Checkrein.

    http://127.0.0.1:PORT/SECRET/openai/v1      for OPENAI_BASE_URL
    http://127.0.0.1:PORT/SECRET/anthropic      for ANTHROPIC_BASE_URL
    http://127.0.0.1:PORT/SECRET/gemini         for GOOGLE_GEMINI_BASE_URL

Requests for a model become calls of a run (`exchange`): permitted, recorded, priced, stopped. Everything else under the
prefix of a provider passes unread. The secret authenticates: another finds nothing. With `-` in its place it comes in a
header, `x-checkrein-secret`. Keys pass, and are kept nowhere.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
import secrets
import zlib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from checkrein.agents.context import Context
from checkrein.errors import CheckreinError, MisuseError, ModelUnavailable
from checkrein.gateway import upstream
from checkrein.gateway.client_stream import ClientStream
from checkrein.gateway.conversations import MainConversation
from checkrein.gateway.exchange import Exchange, Target
from checkrein.gateway.tool_steps import ToolSteps
from checkrein.gateway.upstream import MARK, PROVIDERS
from checkrein.gateway.wires.base import Body, SeenCall, Wire
from checkrein.gateway.wires.chat import ChatWire
from checkrein.gateway.wires.gemini import GeminiWire
from checkrein.gateway.wires.messages import MessagesWire
from checkrein.gateway.wires.responses import ResponsesWire
from checkrein.models.base import tokens_of

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
MOST_BYTES: Final = 1 << 30
"""The largest request that is taken."""
CLOSE_SECONDS: Final = 1.0
"""How long answers that are refused may take to be written when the gateway closes."""

STOPPED: Final = "This run was cancelled in Checkrein; nothing more is asked of a model for it."

STRANGER: Final = "Somebody asked the gateway with another secret, and was answered 404."
UNREADABLE: Final = (
    "A request to {} cannot be read: its body is no JSON, or compressed in a way that is not known. Such requests are "
    "passed on, counted and stopped with the run, but what they say is not seen, and no instruction goes with them."
)
CHAINED: Final = "Requests to {} go on to another gateway of Checkrein: both may stop them."

CHAT, RESPONSES, MESSAGES, GEMINI = ChatWire(), ResponsesWire(), MessagesWire(), GeminiWire()

WIRES: Final[tuple[tuple[str, re.Pattern[str], Wire], ...]] = (
    ("openai", re.compile(r"chat/completions"), CHAT),
    ("openai", re.compile(r"responses"), RESPONSES),
    ("anthropic", re.compile(r"(?:v1/)?messages"), MESSAGES),
    ("gemini", re.compile(r"(?:v1\w*/)?models/[^/:]+:(?:streamG|g)enerateContent"), GEMINI),
)
"""What asks a model: provider, address below its prefix, wire."""

OF_PROVIDER: Final[Mapping[str, Wire]] = {"openai": CHAT, "anthropic": MESSAGES, "gemini": GEMINI}
"""How each says that something went wrong."""


HOOK: Final = "hook"


class Hook(Protocol):
    """Who is asked before a program uses a tool."""

    async def ask(self, raw: bytes) -> bytes:
        """What the program is told, of what it says it is about to do: both JSON, as the program has it."""

    def finished(self, use: str, result: str) -> None:
        """The result of a tool call, by its id, has come by in a request. It may come by often."""


class Gateway:
    """A gateway for the requests of one program, as calls of the run of `ctx`.

        async with Gateway(ctx, upstreams={"openai": "http://127.0.0.1:8000/v1"}) as gateway:
            process = await asyncio.create_subprocess_exec(..., env={**os.environ, **gateway.environment()})

    `upstreams` says where requests go on to, by provider (`openai`, `anthropic`, `gemini`); without, that is what the
    provider's variable in `environment` (that of this process) held before, or else the provider's own address. Raises
    `MisuseError` for a provider that is not known and an upstream that is no address. `main_offers_tools` says that the
    program's main conversation offers tools: what a person says then goes with no request that offers none. `hook` is
    asked by programs that ask before they use a tool, at `hook_url`, and told what came of those tools. `tell` is told
    what a person should know, with a word for its kind: once of each kind.

    It serves for as long as the `async with` lasts. Once the run is being cancelled its streams are closed, and
    everything is answered with 400; on leaving, every connection is closed.
    """

    def __init__(
        self,
        ctx: Context,
        *,
        upstreams: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        main_offers_tools: bool = False,
        hook: Hook | None = None,
        tell: Callable[[str, str], None] | None = None,
    ) -> None:
        given = {} if environment is None else {"environment": environment}
        self.upstreams = upstream.upstreams_of(upstreams or {}, **given)
        """Where requests go on to, by provider."""
        self.requests = 0
        """How many requests for a model there were."""
        self._hook = hook
        self._tell = tell
        self._told: set[str] = set()
        self._ctx = ctx
        self._secret = MARK + secrets.token_urlsafe(24)
        self._main = MainConversation(offers_tools=main_offers_tools)
        self._steps = ToolSteps(ctx)
        self._exchanges: set[Exchange] = set()
        """Those that are not over."""
        self._ids: dict[str, str] = {}
        """Of answers that the client knows by another id than the provider."""
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._over: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def urls(self) -> dict[str, str]:
        """The address of each provider here. They hold the secret."""
        return {name: f"{self._base}/{provider.path}" for name, provider in PROVIDERS.items()}

    @property
    def _base(self) -> str:
        if self._runner is None:
            raise MisuseError("The gateway has no address yet: use it inside `async with`.")
        return f"http://{HOST}:{self._port}/{self._secret}"

    @property
    def hook_url(self) -> str:
        """Where a hook asks. It holds the secret."""
        return f"{self._base}/{HOOK}"

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._port

    @property
    def chained(self) -> tuple[str, ...]:
        """The providers whose requests go on to another gateway like this one."""
        return tuple(name for name, address in self.upstreams.items() if upstream.is_gateway(address))

    @property
    def at_work_since(self) -> float | None:
        """Since when the program is at work with the tools that its main conversation has asked for, as start times of
        processes are counted; None while it is not."""
        return self._main.at_work_since

    def environment(self) -> dict[str, str]:
        """The variables by which programs find it: every one that is known to be looked at."""
        urls = self.urls
        found = {variable: urls[name] for name, provider in PROVIDERS.items() for variable in provider.variables}
        # Loopback must not be asked for at a proxy.
        return found | {"NO_PROXY": f"{HOST},localhost", "no_proxy": f"{HOST},localhost"}

    async def __aenter__(self) -> Self:
        from aiohttp import web

        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # What a client sends is not logged: the address holds the secret. A handler is cancelled when its client goes.
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=CLOSE_SECONDS
        )
        await runner.setup()
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        self._port = runner.addresses[0][1]
        self._runner = runner
        self._over = asyncio.get_running_loop().create_future()
        self._start(self._watch())
        for name in self.chained:
            self._tell_once(f"chained.{name}", CHAINED.format(name))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    def _tell_once(self, kind: str, words: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            _log.warning("%s", words)
            if self._tell is not None:
                self._tell(kind, words)

    # -- the end

    async def _watch(self) -> None:
        """Close everything as soon as the run is being cancelled, and not only when its program is."""
        try:
            await self._ctx.until_stopped()
        finally:
            self._end()

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
            for exchange in self._exchanges:
                exchange.stop()

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        found = self._place(request)
        if found is None:
            return web.Response(status=404)
        provider, rest = found
        if "upgrade" in request.headers:
            return web.Response(status=426, text="This gateway speaks HTTP only.")
        raw = await request.read()
        if self._is_over:
            return _refused(OF_PROVIDER.get(provider, CHAT))
        if provider == HOOK:
            return await self._ask_hook(raw)
        wire = next((wire for name, path, wire in WIRES if name == provider and path.fullmatch(rest)), None)
        target = Target(
            provider,
            request.method,
            upstream.target(self.upstreams[provider], rest, request.rel_url.raw_query_string),
            upstream.request_headers(request.headers),
            raw,
        )
        if wire is None or request.method != "POST":
            return await self._pass(request, target)
        return await self._ask(request, wire, rest, target)

    @property
    def _is_over(self) -> bool:
        return self._over is None or self._over.done()

    def _place(self, request: web.Request) -> tuple[str, str] | None:
        """Which provider is meant, and what of it; None for whoever does not know the secret."""
        path = request.rel_url.raw_path.lstrip("/")
        secret, _, rest = path.partition("/")
        if secret == upstream.NO_SECRET:
            secret = request.headers.get(upstream.SECRET_HEADER, "")
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            self._tell_once("stranger", STRANGER)
            return None
        if rest == HOOK and self._hook is not None:
            return HOOK, ""
        for name, provider in PROVIDERS.items():
            if rest == provider.path or rest.startswith(f"{provider.path}/"):
                return name, rest[len(provider.path) + 1 :]
        return None

    async def _ask_hook(self, raw: bytes) -> web.StreamResponse:
        from aiohttp import web

        assert self._hook is not None
        assert self._over is not None
        asking = self._start(self._hook.ask(raw))
        try:
            await asyncio.wait({asking, self._over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
        if not asking.done() or asking.cancelled():
            return _refused(CHAT)
        return web.Response(body=asking.result(), content_type="application/json")

    # -- a request for a model

    async def _ask(self, request: web.Request, wire: Wire, rest: str, target: Target) -> web.StreamResponse:
        self.requests += 1
        body = _decoded(target.raw, request.headers.get("content-encoding", ""))
        if body is None:
            self._tell_once("unreadable", UNREADABLE.format(target.provider))
        else:
            body, target = self._with_real_id(body, target)
        is_main = body is not None and self._main.has(wire, body)
        client = ClientStream(request)
        exchange = Exchange(wire, target, body, client, main=self._main if is_main else None, listener=self)
        self._exchanges.add(exchange)
        if is_main:
            self._main.asked()
        asked = self._recorded(wire, body, target)
        name = f"{wire.provider}:{'unreadable' if body is None else wire.model(body, rest)}"
        answering = self._start(
            self._ctx.answer(exchange.source, name=name, place=f"gateway.{self.requests}", asked=asked, carries=is_main)
        )
        answering.add_done_callback(lambda _: self._exchanges.discard(exchange))
        return await self._until_answered(exchange, client, answering, wire)

    async def _until_answered(
        self, exchange: Exchange, client: ClientStream, answering: asyncio.Task[Any], wire: Wire
    ) -> web.StreamResponse:
        assert self._over is not None
        try:
            await asyncio.wait({answering, self._over}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            exchange.leave()
            if not exchange.has_begun:
                answering.cancel()  # it has no permit, and nobody needs one any more
            raise
        if not answering.done() or answering.cancelled() or self._is_over:
            if client.response is None:
                return _refused(wire)
            client.cut()
            return client.response
        if (error := answering.exception()) is not None:
            return _failed(client, wire, error)
        await client.end()
        assert client.response is not None, "an answer that is whole was sent"
        return client.response

    def _recorded(self, wire: Wire, body: Body | None, target: Target) -> dict[str, Any]:
        """What is recorded of a request: the last that was said, and about how much there is to read."""
        asked: dict[str, Any] = {"tokens": tokens_of(len(target.raw))}
        if body is None:
            return asked | {"unreadable": True}
        messages = wire.messages(body)
        for call, text in wire.results(messages):
            self._steps.finished(call)
            if self._hook is not None:
                self._hook.finished(call, text)
        last = [message for message in messages[-1:] if not wire.is_answer(message)]
        texts = [wire.text_of(message) for message in last]
        results = [{"call": call, "result": text[:MOST_SHOWN]} for call, text in wire.results(last)]
        return asked | {
            "messages": [{"role": "user", "text": text[:MOST_SHOWN]} for text in texts if text],
            **({"results": results} if results else {}),
        }

    def _with_real_id(self, body: Body, target: Target) -> tuple[Body, Target]:
        """A request that goes on from an answer that was spliced names it as the provider knows it."""
        real = self._ids.get(str(body.get("previous_response_id")))
        if real is None:
            return body, target
        body = {**body, "previous_response_id": real}
        headers = {name: value for name, value in target.headers.items() if name.lower() != "content-encoding"}
        return body, msgspec.structs.replace(target, raw=msgspec.json.encode(body), headers=headers)

    # -- what an exchange tells

    def answered(self, exchange: Exchange, calls: tuple[SeenCall, ...]) -> None:
        if exchange.main is not None:
            exchange.main.answered(at_work_since=exchange.answered_since if calls else None)
        for call in calls:
            self._start(self._steps.show(call))

    def renamed(self, shown: str, real: str) -> None:
        self._ids[shown] = real

    # -- everything else

    async def _pass(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Pass a request on unread, and its answer back as it comes."""
        client = ClientStream(request)
        passing = self._start(self._passed(client, target))
        assert self._over is not None
        try:
            await asyncio.wait({passing, self._over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            passing.cancel()
            with suppress(asyncio.CancelledError):
                await passing
        if client.response is None:
            return _refused(OF_PROVIDER[target.provider])
        if not client.is_cut and passing.cancelled():
            client.cut()
        return client.response

    async def _passed(self, client: ClientStream, target: Target) -> None:
        body = target.raw or None
        try:
            response = await upstream.send(target.provider, target.method, target.url, target.headers, body)
        except ModelUnavailable as error:
            wire = OF_PROVIDER[target.provider]
            said = msgspec.json.encode(wire.refusal(502, str(error.message)))
            await client.whole(502, {"content-type": "application/json"}, said)
            return
        try:
            await client.begin(response.status, upstream.answer_headers(response.headers))
            while data := await response.read():
                await client.write(data)
            await client.end()
        except ModelUnavailable:
            client.cut()
        finally:
            response.close()


MOST_SHOWN: Final = 4_000
"""How much is recorded of what was said last, and of each result."""


def _decoded(raw: bytes, encoding: str) -> Body | None:
    """A body as JSON; None where it is none, or compressed in a way that is not known here."""
    try:
        if encoding.lower() == "gzip":
            raw = gzip.decompress(raw)
        elif encoding.lower() == "deflate":
            raw = zlib.decompress(raw)
        elif encoding.lower() not in ("", "identity"):
            return None
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, OSError, EOFError, zlib.error):
        return None
    return body if isinstance(body, dict) else None


def _refused(wire: Wire) -> web.Response:
    from aiohttp import web

    body = msgspec.json.encode(wire.refusal(400, STOPPED))
    return web.Response(status=400, body=body, content_type="application/json", headers={"x-should-retry": "false"})


def _failed(client: ClientStream, wire: Wire, error: BaseException) -> web.StreamResponse:
    """The call itself came to nothing, for a reason of ours."""
    from aiohttp import web

    said = error.message if isinstance(error, CheckreinError) else type(error).__name__
    _log.warning("a request could not be answered: %s", said)
    if client.response is not None:
        client.cut()
        return client.response
    body = msgspec.json.encode(wire.refusal(502, f"Checkrein could not answer this request: {said}"))
    return web.Response(status=502, body=body, content_type="application/json")
