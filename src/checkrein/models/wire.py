"""A model behind an HTTP address: how it is asked, how its answer is read to the end, and how what goes wrong is said.

What a request and an event look like is not known here. The wires, such as `openai` and `anthropic.model`, add it.

Messages as the bytes of a wire, made once: all of a history is sent each time, and it grows by a message or two.

A message is frozen, and a history hands on the very same objects from turn to turn, so they are told apart by identity:
to look at their contents would cost what this is to save. What was not used for long is forgotten.

The body of a request with 400 messages (120 kB) takes 43 µs this way instead of 440.

What both wires' readers of an answer have in common: how far it has come, and what has come of it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import SplitResult

import msgspec

from checkrein.errors import MisuseError, ModelError, ModelUnavailable
from checkrein.models import failures
from checkrein.models.base import Collector, Delta, Reply, TextDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import DEFAULT_TIMEOUTS, Response, Timeouts, client, stalled
from checkrein.models.http.sse import EventParser, EventTooLarge
from checkrein.models.messages import Message, Request
from checkrein.models.registry import Service, base_url_of, is_address, key_of, split_url


class Reader(ABC):
    """Makes deltas of events, one answer long, and remembers them."""

    __slots__ = ("_said", "is_complete", "is_finished")

    def __init__(self) -> None:
        self.is_finished = False
        """The model has said all it is going to say. What may still come is what it used."""
        self.is_complete = False
        """The provider has said that nothing more will come."""
        self._said: list[Delta] = []

    @abstractmethod
    def read(self, event: bytes) -> list[Delta]:
        """What `event` adds to the answer. Raises `ErrorInStream`, or `msgspec.DecodeError` for what is no event."""

    def partial(self, request: Request) -> Reply:
        """What has come so far."""
        collector = Collector(request)
        for delta in self._said:
            collector.add(delta)
        return collector.partial()


def read_together(reader: Reader, events: Iterable[bytes]) -> Iterator[Delta]:
    """What events that have come together add to the answer, up to the one that completes it: text without a cut.

    Nobody could have stopped between two of them, and whatever is done for each piece is done once. What came before
    an event that cannot be read is given before that is raised.
    """
    texts: list[str] = []
    try:
        for event in events:
            for delta in reader.read(event):
                if isinstance(delta, TextDelta):
                    texts.append(delta.text)
                    continue
                if texts:
                    yield TextDelta("".join(texts))
                    texts.clear()
                yield delta
            if reader.is_complete:
                break
    except Exception:
        if texts:
            yield TextDelta("".join(texts))
        raise
    if texts:
        yield TextDelta("".join(texts))


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
                for delta in reader.read(events[0]) if len(events) == 1 else read_together(reader, events):
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
            self._who(), error, secrets=self._secrets(), place_of=lambda place: self._place_of(request, place)
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

    def check_settings(self) -> None:
        """Raise what a request would raise before anything is sent: there is no key, or no address."""
        self._key()
        self._address()

    def _key(self) -> str:
        return key_of(self._service, self._api_key)

    def _secrets(self) -> list[str]:
        return [self._key(), *self._headers.values()]


CACHED_BYTES: Final = 8 << 20
"""When so much is kept, what was not used since the last time is forgotten. Twice of it is the most that is held."""

OVERHEAD: Final = 400
"""What a message costs here besides its text."""


class EncodedMessages:
    """`encode` for one message at a time, remembered."""

    __slots__ = ("_encode", "_limit", "_older", "_recent", "_size")

    def __init__(self, encode: Callable[[Message], bytes], limit: int = CACHED_BYTES) -> None:
        self._encode = encode
        self._limit = limit
        self._recent: dict[int, tuple[Message, bytes]] = {}
        """By identity. It holds the message too, so that no other one can have its identity meanwhile."""
        self._older: dict[int, tuple[Message, bytes]] = {}
        self._size = 0

    def all(self, messages: Iterable[Message]) -> list[bytes]:
        """Each of `messages` as bytes."""
        recent = self._recent
        encoded: list[bytes] = []
        for message in messages:
            entry = recent.get(id(message))
            encoded.append(entry[1] if entry is not None else self._make(message))
        if self._size > self._limit:
            self._older, self._recent, self._size = self._recent, {}, 0
        return encoded

    def _make(self, message: Message) -> bytes:
        entry = self._older.get(id(message)) or (message, self._encode(message))
        self._recent[id(message)] = entry
        # The message is as long as its bytes, more or less, and both are held.
        self._size += 2 * len(entry[1]) + OVERHEAD
        return entry[1]


class OneServiceModel(WireModel):
    """A model of the only service that speaks its wire."""

    service: Service

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        super().__init__(self.service, name, api_key=api_key, base_url=base_url, headers=headers, timeouts=timeouts)
        self._messages = EncodedMessages(self._encoded)

    @abstractmethod
    def _encoded(self, message: Message) -> bytes:
        """One message as it goes over the wire."""
