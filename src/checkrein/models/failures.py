"""What an error of a provider means: which typed error it is, whether to try again, and what it said, for people.

Both wires answer with a status and, mostly, `{"error": {"message": …, "type": …, "code": …}}`; compatible servers have
forms of their own. Whatever came, what is raised is a `ModelError` with one sentence. Nothing of the request is in it.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from checkrein.errors import (
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelUnauthorised,
    ModelUnavailable,
)
from checkrein.models.sse import EventTooLarge

LONGEST_SENTENCE: Final = 600
"""More than this of what a provider says is cut off."""

LEAST_SECRET: Final = 6
"""A shorter header is no secret, and blanking it out would garble what a provider says."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]+")
_POSITION: Final = re.compile(r"\bmessages\.?\[?(\d+)\b")
_NO_CREDIT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
_TOO_LONG: Final = frozenset({"context_length_exceeded", "request_too_large", "string_above_max_length"})
_SAYS_TOO_LONG: Final = re.compile(r"prompt is too long|exceed context limit", re.IGNORECASE)
_SAYS_NO_CREDIT: Final = re.compile(r"credit balance is too low", re.IGNORECASE)
"""Anthropic says both with the status and the type of any other refusal."""


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
_BY_STATUS: Final[Mapping[int, tuple[type[ModelError], str]]] = {
    401: (ModelUnauthorised,   "does not take the API key"),
    402: (ModelRateLimited,    "wants credit first"),
    403: (ModelUnauthorised,   "does not allow this"),
    404: (ModelNotFound,       "does not have this model"),
    408: (ModelUnavailable,    "took too long"),
    409: (ModelUnavailable,    "could not answer just now"),
    413: (ModelRefusedRequest, "says that the request is too large"),
    425: (ModelUnavailable,    "could not answer just now"),
    429: (ModelRateLimited,    "is asked too often, or a quota is used up"),
    503: (ModelUnavailable,    "is overloaded or not available"),
    529: (ModelUnavailable,    "is overloaded"),
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
) -> ModelError:
    """The error that a response other than 200 means. `who` names the provider in the sentence.

    `secrets` are blanked out in what it says: servers exist that repeat the key they were given. `place_of` turns the
    place of a message on the wire into its place in the request.
    """
    said = read(body, secrets)
    if 300 <= status < 400:
        return ModelNotFound(
            f"{who} answered that it is somewhere else ({status}).",
            remedy="Correct the base URL: an API key does not follow a redirect.",
            status=status,
        )
    return _error(who, status, said, place_of, retry_after(headers), headers.get("x-should-retry"))


def from_stream(
    who: str,
    body: bytes,
    *,
    secrets: Iterable[str] = (),
    place_of: Callable[[int], int | None] = lambda place: place,
) -> ModelError:
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
) -> ModelError:
    """What went wrong in the middle of an answer, whatever way it was noticed."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, ErrorInStream):
        return from_stream(who, error.body, secrets=secrets, place_of=place_of)
    if isinstance(error, EventTooLarge):
        return ModelUnavailable(
            f"{who} sent a single event that is too large to be a part of an answer.", reason="oversized"
        )
    return ModelUnavailable(f"{who} sent an event that cannot be read as a part of an answer.", reason="malformed")


def _error(
    who: str,
    status: int,
    said: Said,
    place_of: Callable[[int], int | None],
    wait: float | None,
    should_retry: str | None,
) -> ModelError:
    fallback = (ModelUnavailable, "has a fault") if status >= 500 else (ModelRefusedRequest, "refused the request")
    no_credit = (
        status == 402
        or said.code in _NO_CREDIT
        or said.type in _NO_CREDIT
        or bool(status == 400 and _SAYS_NO_CREDIT.search(said.message))
    )
    kind, what = _BY_STATUS.get(402 if no_credit and status == 400 else status, fallback)
    values: dict[str, Any] = {"status": status}
    if kind is ModelRefusedRequest:
        found = _POSITION.search(said.param) or _POSITION.search(said.message)
        values["position"] = place_of(int(found[1])) if found else None
        if status == 413 or {said.code, said.type} & _TOO_LONG or _SAYS_TOO_LONG.search(said.message):
            values["remedy"] = "Start again with less: what is asked is longer than this model takes."
    elif kind.may_retry:
        values["retry_after"] = wait
        if no_credit:
            values |= {"may_retry": False, "remedy": "Add credit, or raise the limit, with the provider; then resume."}
        elif should_retry == "false":
            values["may_retry"] = False
        if kind is ModelUnavailable:
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
