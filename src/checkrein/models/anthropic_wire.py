"""Models that are asked over the Anthropic wire (messages): Anthropic, and everybody who speaks as it does.

    AnthropicModel("claude-opus-5-5")
    AnthropicModel("kimi-k2", provider="moonshot", base_url="https://api.moonshot.ai/anthropic")

By name, as in `anthropic:claude-opus-5-5`, they are made in `by_name`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from checkrein.errors import MisuseError
from checkrein.models.anthropic_body import Bodies, Body, gives_thinking
from checkrein.models.anthropic_stream import AnthropicReader
from checkrein.models.http import DEFAULT_TIMEOUTS, Response, Timeouts
from checkrein.models.messages import Request
from checkrein.models.reader import Reader
from checkrein.models.services import Service, key_of, service_called
from checkrein.models.wire import WireModel

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


class AnthropicModel(WireModel):
    """A model behind `POST {base_url}/v1/messages`.

    Key and address are taken from the arguments, or else from the environment (`ANTHROPIC_API_KEY`,
    `ANTHROPIC_BASE_URL`) when it is asked; `api_key=""` is for a server that takes none. `max_tokens` is the longest
    answer where the settings of an agent do not say. `provider` is what stands before the colon of its name: those that
    are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request. What one answer may
    cost in time is in `timeouts`.
    """

    wrong_address = "Check that the base URL is that of an Anthropic-compatible API, without /v1/messages at its end."
    # For the last event of a complete answer. It says nothing, but keeps the connection usable.
    end_seconds = 1.0

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
        if max_tokens < 1:
            raise MisuseError("max_tokens must be at least 1: it limits how long an answer may be.")
        service = ANTHROPIC if provider == ANTHROPIC.name else service_called(provider)
        super().__init__(service, name, api_key=api_key, base_url=base_url, headers=headers, timeouts=timeouts)
        self._bodies = Bodies(name, max_tokens=max_tokens)

    async def _ask(self, request: Request) -> Response:
        response = await self._send(self._bodies.make(request))
        if response.status == 400 and gives_thinking(request):
            said = await response.beginning()
            if b"thinking" not in said:
                raise self._refusal(response, said, request)
            # It does not recognise what it thought: another model or account did, or something before it has changed.
            # It does without, and rather that than to end a run for it.
            response = await self._send(self._bodies.make(request, thinks=False))
        return await self._streaming(response, request)

    async def _send(self, body: Body) -> Response:
        headers = self._all_headers(body.version)
        return await self._post(self._url(), headers, body.data)

    def _reader(self) -> Reader:
        return AnthropicReader()

    def _place_of(self, request: Request, place: int) -> int | None:
        return self._bodies.place_of(request, place)

    def _url(self) -> str:
        address = self._address()
        path = address.path.rstrip("/").removesuffix("/v1")
        return address._replace(path=f"{path}/v1/messages").geturl()

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

    def _key(self) -> str:
        return self._token() or super()._key()
