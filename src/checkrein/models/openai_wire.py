"""Models that are asked over the OpenAI wire (chat completions): OpenAI, and everybody who speaks as it does.

    OpenAIModel("gpt-5")
    OpenAIModel("qwen3", base_url="http://gpu-1:8000/v1", api_key="")

By name, as in `openai:gpt-5`, they are made in `by_name`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from checkrein.errors import ModelUnavailable
from checkrein.models.http import DEFAULT_TIMEOUTS, Response, Timeouts
from checkrein.models.messages import Request
from checkrein.models.openai_body import Bodies
from checkrein.models.openai_stream import OpenAIReader
from checkrein.models.reader import Reader
from checkrein.models.services import service_called
from checkrein.models.wire import WireModel


class OpenAIModel(WireModel):
    """A model behind `POST {base_url}/chat/completions`.

    Key and address are taken from the arguments, or else from the environment (`OPENAI_API_KEY`, `OPENAI_BASE_URL`)
    when it is asked; `api_key=""` is for a server that takes none. `provider` is what stands before the colon of its
    name: those that are not known here have their key in `PROVIDER_API_KEY`. `headers` are sent with every request.
    Some servers want a model's thinking back, in the field that `thinking_field` names, or do not know the question for
    usage. What one answer may cost in time is in `timeouts`.
    """

    wrong_address = "Check that the base URL is that of an OpenAI-compatible API, which mostly ends in /v1."
    # For what an answer has used, which some give only after it.
    end_seconds = 5.0

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
        service = service_called(provider)
        super().__init__(service, name, api_key=api_key, base_url=base_url, headers=headers, timeouts=timeouts)
        self._bodies = Bodies(
            name,
            limit_field=service.limit_field,
            thinking_field=thinking_field,
            asks_for_usage=asks_for_usage,
        )

    async def _ask(self, request: Request) -> Response:
        url, headers = self._url(), self._all_headers()
        body = self._bodies.make(request)
        try:
            response = await self._post(url, headers, body)
        except ModelUnavailable as error:
            if error.reason == "refused" and self._base_url is None and self._service.when_refused:
                error.remedy = self._service.when_refused
            raise
        return await self._streaming(response, request)

    def _reader(self) -> Reader:
        return OpenAIReader()

    def _place_of(self, request: Request, place: int) -> int | None:
        return self._bodies.place_of(request, place)

    def _url(self) -> str:
        address = self._address()
        return address._replace(path=f"{address.path.rstrip('/')}/chat/completions").geturl()

    def _all_headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        for header, variable in self._service.header_variables.items():
            if value := os.environ.get(variable, "").strip():
                headers[header] = value
        if key := self._key():
            headers["authorization"] = f"Bearer {key}"
        return headers | self._headers
