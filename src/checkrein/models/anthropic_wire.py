"""Models that are asked over the Anthropic wire (messages): Anthropic, and everybody who speaks as it does.

    AnthropicModel("claude-opus-5-5")
    AnthropicModel("kimi-k2", provider="moonshot", base_url="https://api.moonshot.ai/anthropic")

By name, as in `anthropic:claude-opus-5-5`, they are made in `by_name`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import msgspec

from checkrein.errors import MisuseError, ModelError, ModelUnavailable
from checkrein.models import failures
from checkrein.models.anthropic_body import Bodies, Body, gives_thinking
from checkrein.models.anthropic_stream import Reader
from checkrein.models.failures import ErrorInStream
from checkrein.models.http import DEFAULT_TIMEOUTS, Response, Timeouts, client
from checkrein.models.messages import Request
from checkrein.models.port import Delta
from checkrein.models.services import Service, base_url_of, is_address, key_of, service_called, split_url
from checkrein.models.sse import EventParser, EventTooLarge

ANTHROPIC: Final = Service(
    name="anthropic",
    base_url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
)

TOKEN_VARIABLE: Final = "ANTHROPIC_AUTH_TOKEN"
"""Some gateways are given this instead of a key."""

MAX_TOKENS: Final = 32_000
"""The wire wants a limit. Thinking counts, and every model of the last years can write as much."""

END_SECONDS: Final = 1.0
"""How long to wait for the last event of a complete answer. It says nothing, but keeps the connection usable."""


class AnthropicModel:
    """A model behind `POST {base_url}/v1/messages`.

    Key and address are taken from the arguments, or else from the environment (`ANTHROPIC_API_KEY`,
    `ANTHROPIC_BASE_URL`) when it is asked; `api_key=""` is for a server that takes none. `max_tokens` is the longest
    answer where the settings of an agent do not say. `provider` is what stands before the colon of its name: those that
    are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request. What one answer may
    cost in time is in `timeouts`.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str = "anthropic",
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = MAX_TOKENS,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        if base_url is not None and not is_address(base_url):
            raise MisuseError("base_url must be an address that begins with http:// or https://.")
        if max_tokens < 1:
            raise MisuseError("max_tokens must be at least 1: it limits how long an answer may be.")
        for header, value in (headers or {}).items():
            if not (header.isascii() and header.isprintable() and value.isprintable()):
                raise MisuseError(f"The header {header!r} holds characters that cannot be sent.")
        self._service = ANTHROPIC if provider == ANTHROPIC.name else service_called(provider)
        self._name = name
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._timeouts = timeouts
        self._bodies = Bodies(name, max_tokens=max_tokens)

    @property
    def name(self) -> str:
        return f"{self._service.name}:{self._name}"

    def __repr__(self) -> str:
        return f"<AnthropicModel {self.name}>"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        reader = Reader()
        response = await self._ask(request)
        try:
            parser = EventParser()
            while data := await response.read():
                for event in parser.feed(data):
                    for delta in reader.read(event):
                        yield delta
                    if reader.is_complete:
                        await response.end()
                        return
                if reader.is_finished:
                    response.hurry(END_SECONDS)
            if not reader.is_finished:
                raise ModelUnavailable(f"{self._who()} ended its answer before it was complete.", reason="cut")
        except (ModelUnavailable, EventTooLarge, ErrorInStream, msgspec.DecodeError, RecursionError) as error:
            problem = None if reader.is_finished else self._problem(error, request, reader)
        else:
            problem = None
        finally:
            response.close()
        if problem is not None:
            raise problem

    async def _ask(self, request: Request) -> Response:
        """A response that streams. Raises what stands in its way."""
        response = await self._post(self._bodies.make(request))
        if response.status == 400 and gives_thinking(request):
            said = await response.beginning()
            if b"thinking" not in said:
                raise self._refusal(response, said, request)
            # It does not recognise what it thought: another model or account did, or something before it has changed.
            # It does without, and rather that than to end a run for it.
            response = await self._post(self._bodies.make(request, thinks=False))
        kind = response.headers.get("content-type", "")
        if response.status == 200 and not kind.startswith(("application/json", "text/html")):
            return response
        said = await response.beginning()
        raise self._refusal(response, said, request) if response.status != 200 else self._not_streamed(said)

    async def _post(self, body: Body) -> Response:
        headers = self._all_headers(body.version)
        return await client().post(self._url(), headers, body.data, who=self._who(), timeouts=self._timeouts)

    # -- what goes wrong

    def _refusal(self, response: Response, said: bytes, request: Request) -> ModelError:
        return failures.from_response(
            self._who(),
            response.status,
            response.headers,
            said,
            secrets=self._secrets(),
            place_of=lambda place: self._bodies.place_of(request, place),
        )

    def _problem(self, error: Exception, request: Request, reader: Reader) -> ModelError:
        """What went wrong in the middle of an answer, with what had come of it."""
        problem = failures.from_break(
            self._who(),
            error,
            secrets=self._secrets(),
            place_of=lambda place: self._bodies.place_of(request, place),
        )
        if isinstance(problem, ModelUnavailable):
            problem.partial = reader.partial(request)
        return problem

    def _not_streamed(self, body: bytes) -> ModelError:
        if failures.tells_of_an_error(body):
            return failures.from_stream(self._who(), body, secrets=self._secrets())
        return ModelUnavailable(
            f"{self._who()} did not answer with a stream of events.",
            reason="malformed",
            may_retry=False,
            remedy="Check that the base URL is that of an Anthropic-compatible API, without /v1/messages at its end.",
        )

    # -- where, and as whom

    def _url(self) -> str:
        parts = split_url(base_url_of(self._service, self._base_url))
        assert parts is not None, "it was looked at before"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return parts._replace(path=f"{path}/v1/messages").geturl()

    def _who(self) -> str:
        parts = split_url(base_url_of(self._service, self._base_url))
        assert parts is not None, "it was looked at before"
        return f"{self._service.name} ({parts.hostname})"

    def _all_headers(self, version: str) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream", "anthropic-version": version}
        if token := self._token():
            headers["authorization"] = f"Bearer {key_of(self._service, token)}"
        elif key := key_of(self._service, self._api_key):
            headers["x-api-key"] = key
        return headers | self._headers

    def _token(self) -> str:
        """What stands in for a key, where there is none."""
        has_key = self._api_key is not None or os.environ.get(self._service.key_variable, "").strip()
        return "" if has_key or self._service is not ANTHROPIC else os.environ.get(TOKEN_VARIABLE, "").strip()

    def _secrets(self) -> list[str]:
        return [self._token() or key_of(self._service, self._api_key), *self._headers.values()]
