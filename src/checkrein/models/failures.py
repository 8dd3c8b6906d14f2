"""What an error of a provider means: which typed error it is, whether to try again, and what it said, for people.

Both wires answer with a status and, mostly, `{"error": {"message": …, "type": …, "code": …}}`; compatible servers have
forms of their own. Whatever came, what is raised is a `ModelError` with one sentence. Nothing of the request is in it.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from checkrein import errors
from checkrein.models.http.sse import EventTooLarge

LONGEST_SENTENCE: Final = 600
"""More than this of what a provider says is cut off."""

LEAST_SECRET: Final = 6
"""A shorter header is no secret, and blanking it out would garble what a provider says."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_POSITION: Final = re.compile(r"\bmessages\.?\[?(\d+)\b")
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_TOO_LONG: Final = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"}
)
_SAYS_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceeds? (the )?(available )?context|maximum context length|context window"
    r"|input token count .*exceeds",
    re.IGNORECASE,
)
_SAYS_NO_CREDIT: Final = re.compile(r"credit balance is too low", re.IGNORECASE)
"""Anthropic says both with the status and the type of any other refusal."""


def says_too_long(sentence: str) -> bool:
    """Whether a provider says with this that what was asked is longer than the model can read."""
    return bool(_SAYS_TOO_LONG.search(sentence))


class ErrorInStream(Exception):
    """The provider tells of an error in the middle of its answer; `body` is what it says."""

    def __init__(self, body: bytes) -> None:
        super().__init__("An error in the stream.")
        self.body = body


class Said(msgspec.Struct, frozen=True):
    """What the body of an error says, as far as it can be made out."""

    message: str = ""
    type: str = ""
    code: str = ""
    param: str = ""


# fmt: off
_BY_STATUS: Final[Mapping[int, tuple[type[errors.ModelError], str]]] = {
    401: (errors.ModelUnauthorised,   "does not take the API key"),
    402: (errors.ModelRateLimited,    "wants credit first"),
    403: (errors.ModelUnauthorised,   "does not allow this"),
    404: (errors.ModelNotFound,       "does not have this model"),
    408: (errors.ModelUnavailable,    "took too long"),
    409: (errors.ModelUnavailable,    "could not answer just now"),
    413: (errors.ModelRefusedRequest, "says that the request is too large"),
    425: (errors.ModelUnavailable,    "could not answer just now"),
    429: (errors.ModelRateLimited,    "is asked too often, or a quota is used up"),
    503: (errors.ModelUnavailable,    "is overloaded or not available"),
    529: (errors.ModelUnavailable,    "is overloaded"),
}
# fmt: on

_BY_TYPE: Final[Mapping[str, int]] = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "billing_error": 402,
    "overloaded_error": 529,
    "timeout_error": 504,
}
"""The status that an error inside a stream would have had, by its type or code."""


def from_response(
    who: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    secrets: Iterable[str] = (),
    place_of: Callable[[int], int | None] = lambda place: place,
) -> errors.ModelError:
    """The error that a response other than 200 means. `who` names the provider in the sentence.

    `secrets` are blanked out in what it says: servers exist that repeat the key they were given. `place_of` turns the
    place of a message on the wire into its place in the request.
    """
    said = read(body, secrets)
    if 300 <= status < 400:
        return errors.ModelNotFound(
            f"{who} answered that it is somewhere else ({status}).",
            remedy="Correct the base URL: an API key does not follow a redirect.",
            status=status,
        )
    return _error(who, status, said, place_of, retry_after(headers), headers.get("x-should-retry"))


def from_stream(
    who: str, body: bytes, *, secrets: Iterable[str] = (), place_of: Callable[[int], int | None] = lambda place: place
) -> errors.ModelError:
    """The error that an event inside a stream tells of."""
    said = read(body, secrets)
    status = int(said.code) if said.code.isdecimal() else _BY_TYPE.get(said.code) or _BY_TYPE.get(said.type) or 500
    return _error(who, status, said, place_of, None, None)


def from_break(
    who: str,
    error: Exception,
    *,
    secrets: Iterable[str] = (),
    place_of: Callable[[int], int | None] = lambda place: place,
) -> errors.ModelError:
    """What went wrong in the middle of an answer, whatever way it was noticed."""
    if isinstance(error, errors.ModelError):
        return error
    if isinstance(error, ErrorInStream):
        return from_stream(who, error.body, secrets=secrets, place_of=place_of)
    if isinstance(error, EventTooLarge):
        return errors.ModelUnavailable(
            f"{who} sent a single event that is too large to be a part of an answer.", reason="oversized"
        )
    return errors.ModelUnavailable(
        f"{who} sent an event that cannot be read as a part of an answer.", reason="malformed"
    )


_LOST: Final = frozenset({"TransportError", "APIConnectionError", "ClientConnectionError", "ServerTimeoutError"})
"""How the HTTP libraries and the SDKs of vendors (httpx, openai, anthropic, aiohttp) call a connection that failed."""
CAUSES_LOOKED_AT: Final = 6


def from_client(who: str, error: BaseException) -> errors.ModelError | None:
    """What an error of somebody else's client means: by the status, or the lost connection, that it or a cause of it
    tells of. None where it tells of neither, and is the author's own."""
    cause: BaseException | None = error
    for _ in range(CAUSES_LOOKED_AT):
        if cause is None or isinstance(cause, errors.ModelError):
            return cause
        status = _status_of(cause)
        if status is not None:
            return from_response(who, status, _headers_of(cause), _body_of(cause))
        if isinstance(cause, ConnectionError | TimeoutError) or _LOST & {one.__name__ for one in type(cause).__mro__}:
            says = _clean(str(cause), ()).rstrip(".") or type(cause).__name__
            return errors.ModelUnavailable(f"{who} could not be reached, or broke off: {says}.", reason="unreachable")
        cause = cause.__cause__ or cause.__context__
    return None


def _status_of(error: BaseException) -> int | None:
    """The status of the response that an error is about; 200 in the middle of a stream says nothing."""
    response = getattr(error, "response", None)
    for owner, name in ((error, "status_code"), (error, "status"), (error, "code"), (response, "status_code")):
        status = getattr(owner, name, None)
        if isinstance(status, int) and not isinstance(status, bool) and 300 <= status < 600:
            return status
    return None


def _headers_of(error: BaseException) -> dict[str, str]:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None)
    return {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, Mapping) else {}


def _body_of(error: BaseException) -> bytes:
    body = getattr(error, "body", None) or str(error)
    try:
        return (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else msgspec.json.encode(body)
        )
    except TypeError:
        return str(error).encode("utf-8", "replace")


def _error(
    who: str,
    status: int,
    said: Said,
    place_of: Callable[[int], int | None],
    wait: float | None,
    should_retry: str | None,
) -> errors.ModelError:
    fallback = (
        (errors.ModelUnavailable, "has a fault")
        if status >= 500
        else (errors.ModelRefusedRequest, "refused the request")
    )
    no_credit = (
        status == 402
        or said.code in _NO_CREDIT
        or said.type in _NO_CREDIT
        or bool(status == 400 and _SAYS_NO_CREDIT.search(said.message))
    )
    kind, what = _BY_STATUS.get(402 if no_credit and status == 400 else status, fallback)
    values: dict[str, Any] = {"status": status}
    if kind is errors.ModelRefusedRequest:
        found = _POSITION.search(said.param) or _POSITION.search(said.message)
        values["position"] = place_of(int(found[1])) if found else None
        if status == 413 or {said.code, said.type} & _TOO_LONG or says_too_long(said.message):
            kind = errors.ModelContextExceeded
    elif kind.may_retry:
        values["retry_after"] = wait
        if no_credit:
            values |= {"may_retry": False, "remedy": "Add credit, or raise the limit, with the provider; then resume."}
        elif should_retry == "false":
            values["may_retry"] = False
        if kind is errors.ModelUnavailable:
            values["reason"] = "overloaded" if status in (503, 529) else "fault"
    where = f" about message {values['position'] + 1}" if values.get("position") is not None else ""
    reply = f": {said.message}" if said.message else "."
    return kind(f"{who} {what} ({status}){where}{reply}", **values)


# -- reading what it said


def read(body: bytes, secrets: Iterable[str] = ()) -> Said:
    """What an error's body says. Text that is no JSON is taken as a sentence, a page of HTML is not."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return Said(_clean("" if text.startswith("<") else text, secrets))
    while isinstance(found, list) and found:
        found = found[0]
    outer = found if isinstance(found, dict) else {}
    inner = outer.get("error", outer.get("detail", outer))
    if not isinstance(inner, dict):
        return Said(_clean(_text(inner), secrets))
    message = _text(inner.get("message")) or _text(outer.get("message"))
    raw = inner.get("metadata")
    if isinstance(raw, dict) and raw.get("raw"):
        # A router repeats here what the provider behind it said, which is more than "Provider returned error".
        message = f"{message} ({_text(raw['raw'])})"
    return Said(_clean(message, secrets), *(_text(inner.get(name)) for name in ("type", "code", "param")))


def tells_of_an_error(body: bytes) -> bool:
    """Whether a body that came with status 200 tells of an error all the same."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and bool(found.get("error"))


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _clean(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) >= LEAST_SECRET:
            text = text.replace(secret, "[hidden]")
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]}…"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a response asks to wait, given in seconds, in milliseconds or as a date; None if it does not."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


RETRIES: Final = 5
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
LONGEST_ASKED_SECONDS: Final = 300.0
"""A provider that wants to be left alone for longer than this is put to a person instead."""
ENLARGEMENTS: Final = 2
"""How often an answer that was cut off is asked for with twice the room, before a person is asked."""
LEAST_ROOM: Final = 256


class Retries:
    """How often one call of a model was asked again, and when it may be again.

    `room` is how many tokens its answer may have by now, where that is more than its settings say.
    """

    def __init__(self, most: int = RETRIES, room: int | None = None) -> None:
        self._left = most
        self._enlargements = ENLARGEMENTS
        self._wait = FIRST_SECONDS
        self.room = room

    def after(self, error: BaseException) -> float | None:
        """The seconds to wait before it is asked again; None when a person has to look at it."""
        if not isinstance(error, errors.ModelError) or not error.may_retry or not self._left:
            return None
        if isinstance(error, errors.ModelCut):
            return self._after_cut(error)
        asked = error.retry_after
        if asked is not None and asked > LONGEST_ASKED_SECONDS:
            return None
        self._left -= 1
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_SECONDS)
        # A little later than asked for, and each a little differently: those who failed together do not come back
        # together.
        return asked * random.uniform(1.0, 1.1) if asked is not None else wait * random.uniform(0.5, 1.5)

    def _after_cut(self, cut: errors.ModelCut) -> float | None:
        if cut.by_cap:
            self._left -= 1  # whether there is more is for the next permit to say
            return 0.0
        self.room = 2 * max(cut.limit, self.room or 0, LEAST_ROOM)
        if not self._enlargements:
            return None
        self._enlargements -= 1
        return 0.0
