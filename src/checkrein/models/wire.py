"""A model behind an HTTP address: how it is asked, how its answer is read to the end, and how what goes wrong is said.

What a request and an event look like is not known here. The two wires, `openai_wire` and `anthropic_wire`, add it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import SplitResult

import msgspec

from checkrein.errors import MisuseError, ModelError, ModelUnavailable
from checkrein.models import failures
from checkrein.models.failures import ErrorInStream
from checkrein.models.http import Response, Timeouts, client, stalled
from checkrein.models.messages import Request
from checkrein.models.port import Delta
from checkrein.models.reader import Reader
from checkrein.models.services import Service, base_url_of, is_address, key_of, split_url
from checkrein.models.sse import EventParser, EventTooLarge


class WireModel(ABC):
    """What both wires do in the same way. It is a `Model`."""

    wrong_address: str
    """What helps when there is no API of this kind at the address."""
    end_seconds: float
    """How long to wait for what may still come, once the model has said all."""

    def __init__(
        self,
        service: Service,
        name: str,
        *,
        api_key: str | None,
        base_url: str | None,
        headers: Mapping[str, str] | None,
        timeouts: Timeouts,
    ) -> None:
        if base_url is not None and not is_address(base_url):
            raise MisuseError("base_url must be an address that begins with http:// or https://.")
        for header, value in (headers or {}).items():
            if not (header.isascii() and header.isprintable() and value.isprintable()):
                raise MisuseError(f"The header {header!r} holds characters that cannot be sent.")
        self._service = service
        self._name = name
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._timeouts = timeouts

    @property
    def name(self) -> str:
        return f"{self._service.name}:{self._name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        reader = self._reader()
        response = await self._ask(request)
        now = asyncio.get_running_loop().time
        try:
            parser = EventParser()
            quiet_since = 0.0
            while data := await response.read():
                events = parser.feed(data)
                if events:
                    quiet_since = 0.0
                else:
                    # Keep-alives that are no events, for instance. A token never comes here, and asks for no time.
                    quiet_since = quiet_since or now()
                    if now() - quiet_since > self._timeouts.first_byte:
                        raise stalled(self._who(), self._timeouts.first_byte)
                for event in events:
                    for delta in reader.read(event):
                        yield delta
                    if reader.is_complete:
                        await response.end()
                        return
                if reader.is_finished:
                    response.hurry(self.end_seconds)
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

    # -- what a wire adds

    @abstractmethod
    async def _ask(self, request: Request) -> Response:
        """A response that streams. Raises what stands in its way."""

    @abstractmethod
    def _reader(self) -> Reader:
        """What reads the events of one answer."""

    @abstractmethod
    def _place_of(self, request: Request, place: int) -> int | None:
        """Which message of `request` is the one at `place` on the wire."""

    # -- asking

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        return await client().post(url, headers, body, who=self._who(), timeouts=self._timeouts)

    async def _streaming(self, response: Response, request: Request) -> Response:
        """`response`, if it streams. Raises what it says instead."""
        kind = response.headers.get("content-type", "")
        if response.status == 200 and not kind.startswith(("application/json", "text/html")):
            return response
        said = await response.beginning()
        raise self._refusal(response, said, request) if response.status != 200 else self._not_streamed(said)

    # -- what goes wrong

    def _refusal(self, response: Response, said: bytes, request: Request) -> ModelError:
        return failures.from_response(
            self._who(),
            response.status,
            response.headers,
            said,
            secrets=self._secrets(),
            place_of=lambda place: self._place_of(request, place),
        )

    def _problem(self, error: Exception, request: Request, reader: Reader) -> ModelError:
        """What went wrong in the middle of an answer, with what had come of it."""
        problem = failures.from_break(
            self._who(),
            error,
            secrets=self._secrets(),
            place_of=lambda place: self._place_of(request, place),
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
            remedy=self.wrong_address,
        )

    # -- where, and as whom

    def _address(self) -> SplitResult:
        parts = split_url(base_url_of(self._service, self._base_url))
        assert parts is not None, "it was looked at before"
        return parts

    def _who(self) -> str:
        return f"{self._service.name} ({self._address().hostname})"

    def _key(self) -> str:
        return key_of(self._service, self._api_key)

    def _secrets(self) -> list[str]:
        return [self._key(), *self._headers.values()]
