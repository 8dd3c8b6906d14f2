"""Errors over HTTP: always `{code, message, …}`, never a stack trace, and a status that says whose turn it is.

The code and the sentence are those of the error itself. What a person typed wrong is a 4xx, whatever it was; only a
store that cannot answer is a 503, and only a mistake of ours a 500.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from checkrein.errors import (
    AccessError,
    CheckreinError,
    EventTooLarge,
    JournalError,
    MisuseError,
    Refused,
    RequestRefused,
    RunNotFound,
    StoreDamaged,
    StoreForbidden,
    StoreFull,
    StoreNotOurs,
    StoreTooNew,
    StoreUnavailable,
    WrongInput,
)

_log = logging.getLogger(__name__)

JSON: Final = "application/json"
RETRY_SECONDS: Final = 1

# The first class that fits decides.
# fmt: off
_STATUS: Final[tuple[tuple[type[CheckreinError], int], ...]] = (
    (RunNotFound,      404),
    (StoreForbidden,   403),
    (StoreFull,        503),
    (StoreUnavailable, 503),
    (StoreDamaged,     503),
    (StoreNotOurs,     503),
    (StoreTooNew,      503),
    (EventTooLarge,    413),
    (Refused,          409),
    (JournalError,     409),  # fenced, over, in conflict: the run says no
    (MisuseError,      422),
    (WrongInput,       422),
)
# fmt: on

_TOLD: Final = ("run", "status", "agent", "call", "known")
"""What of an error's values a client is told beside its code and sentence."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every error answers."""

    code: str
    """Stable: what a program looks at."""
    message: str
    """One sentence for people."""
    run: str | None = None
    status: str | None = None
    """Of a refused verb: where the run stands, or how it ended."""
    agent: str | None = None
    call: str | None = None
    known: tuple[str, ...] = ()
    """What there is instead of what was asked for."""
    host: str | None = None
    path: str | None = None
    """Of a file that is not to be had here: where it is."""


def answer(
    http_status: int,
    code: str,
    message: str,
    headers: Mapping[str, str] | None = None,
    told: Mapping[str, Any] | None = None,
) -> Response:
    body = msgspec.json.encode({"code": code, "message": message, **(told or {})})
    return Response(body, http_status, media_type=JSON, headers=dict(headers or {}))


def not_found(code: str, message: str, **values: Any) -> RequestRefused:
    """The error for something other than a run that there is not."""
    return RequestRefused(message, code=code, status=404, **values)


def invalid(message: str) -> RequestRefused:
    """The error for a request whose fields cannot be meant."""
    return RequestRefused(message, code="invalid", status=422)


def install(app: FastAPI) -> None:
    """Have every error of `app` answered this way."""
    app.add_exception_handler(CheckreinError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, CheckreinError)
    return answer_to(error)


def answer_to(error: CheckreinError) -> Response:
    """The answer for an error of Checkrein."""
    if isinstance(error, AccessError):
        named = ("call", "agent", "known", "host", "path")
        told = {name: value for name in named if (value := getattr(error, name, None))}
        return answer(error.status, error.code, error.message, _headers(error, error.status), told)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 500:
        _log.error("an error that nobody expected here: %s", error, exc_info=error)
        return _mistake()
    told = {name: value for name in _TOLD if (value := getattr(error, name, None))}
    if status == 503:
        _log.warning("the store cannot answer (%s): %s", error.code, error, extra={"run": told.get("run")})
    return answer(status, error.code, error.message, _headers(error, status), told)


def _headers(error: CheckreinError, status: int) -> dict[str, str]:
    headers = dict(error.headers) if isinstance(error, AccessError) else {}
    if status == 503:
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    return headers


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = next(iter(error.errors()), {})
    where = ".".join(str(part) for part in first.get("loc", ())[1:])
    what = str(first.get("msg", "it cannot be read")).removesuffix(".")
    return answer(422, "invalid", f"{where}: {what}." if where else f"The request is not valid: {what}.")


_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "not_json"}


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        message = f"There is nothing at {request.url.path}."
    elif error.status_code == 405:
        message = f"{request.method} is not possible at {request.url.path}."
    else:
        message = str(error.detail)
    code = _CODES.get(error.status_code, "refused" if error.status_code < 500 else "internal")
    return answer(error.status_code, code, message, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """Whoever asked has gone away before they had said what; nobody reads this."""
    return answer(400, "gone", "The connection ended before the request did; nothing was done.")


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _mistake()


def _mistake() -> Response:
    return answer(500, "internal", "Something went wrong in the server; its log says what. Runs are not affected.")
