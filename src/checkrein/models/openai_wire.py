"""Models that are asked over the OpenAI wire (chat completions): OpenAI, and everybody who speaks as it does.

    OpenAIModel("gpt-5")
    OpenAIModel("qwen3", base_url="http://gpu-1:8000/v1", api_key="")

By name, as in `openai:gpt-5`, they are made in `by_name`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import msgspec

from checkrein.errors import MisuseError, ModelError, ModelUnavailable
from checkrein.models import failures
from checkrein.models.failures import ErrorInStream
from checkrein.models.http import DEFAULT_TIMEOUTS, Response, Timeouts, client, stalled
from checkrein.models.messages import Request
from checkrein.models.openai_body import Bodies
from checkrein.models.openai_stream import DONE, Reader
from checkrein.models.port import Delta
from checkrein.models.services import base_url_of, is_address, key_of, service_called, split_url
from checkrein.models.sse import EventParser, EventTooLarge

USAGE_SECONDS: Final = 5.0
"""How long to wait for what an answer has used, once it is complete."""


class OpenAIModel:
    """A model behind `POST {base_url}/chat/completions`.

    Key and address are taken from the arguments, or else from the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`)
    when it is asked; `api_key=""` is for a server that takes none. `provider` is what stands before the colon of its
    name: those that are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request.
    Some servers want a model's thinking back, in the field that `thinking_field` names, or do not know the question for
    usage. What one answer may cost in time is in `timeouts`.
    """

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        thinking_field: str = "",
        asks_for_usage: bool = True,
    ) -> None:
        if base_url is not None and not is_address(base_url):
            raise MisuseError("base_url must be an address that begins with http:// or https://.")
        for header, value in (headers or {}).items():
            if not (header.isascii() and header.isprintable() and value.isprintable()):
                raise MisuseError(f"The header {header!r} holds characters that cannot be sent.")
        self._service = service_called(provider)
        self._name = name
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._timeouts = timeouts
        self._bodies = Bodies(
            name,
            limit_field=self._service.limit_field,
            thinking_field=thinking_field,
            asks_for_usage=asks_for_usage,
        )

    @property
    def name(self) -> str:
        return f"{self._service.name}:{self._name}"

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name}>"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        reader = Reader()
        response = await self._ask(request)
        now = asyncio.get_running_loop().time
        try:
            parser = EventParser()
            heard = now()
            while data := await response.read():
                events = parser.feed(data)
                if events:
                    heard = now()
                elif now() - heard > self._timeouts.first_byte:
                    raise stalled(self._who(), self._timeouts.first_byte)
                for event in events:
                    if event == DONE:
                        for delta in reader.finish():
                            yield delta
                        await response.end()
                        return
                    for delta in reader.read(event):
                        yield delta
                if reader.is_finished:
                    response.hurry(USAGE_SECONDS)
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
        url, headers = self._url(), self._all_headers()
        body = self._bodies.make(request)
        try:
            response = await client().post(url, headers, body, who=self._who(), timeouts=self._timeouts)
        except ModelUnavailable as error:
            if error.reason == "refused" and self._base_url is None and self._service.when_refused:
                error.remedy = self._service.when_refused
            raise
        kind = response.headers.get("content-type", "")
        if response.status == 200 and not kind.startswith(("application/json", "text/html")):
            return response
        said = await response.beginning()
        if response.status != 200:
            raise failures.from_response(
                self._who(),
                response.status,
                response.headers,
                said,
                secrets=self._secrets(),
                place_of=lambda place: self._bodies.place_of(request, place),
            )
        raise self._not_streamed(said)

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
            remedy="Check that the base URL is that of an OpenAI-compatible API, which mostly ends in /v1.",
        )

    # -- where, and as whom

    def _url(self) -> str:
        base = base_url_of(self._service, self._base_url)
        parts = split_url(base)
        assert parts is not None, "it was looked at before"
        return parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl()

    def _who(self) -> str:
        parts = split_url(base_url_of(self._service, self._base_url))
        assert parts is not None, "it was looked at before"
        return f"{self._service.name} ({parts.hostname})"

    def _all_headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        for header, variable in self._service.header_variables.items():
            if value := os.environ.get(variable, "").strip():
                headers[header] = value
        if key := key_of(self._service, self._api_key):
            headers["authorization"] = f"Bearer {key}"
        return headers | self._headers

    def _secrets(self) -> list[str]:
        return [key_of(self._service, self._api_key), *self._headers.values()]
