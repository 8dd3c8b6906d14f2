"""Where requests go on to, and what goes with them.

A request goes on as it came, but for what belongs to one connection, and for what would make its answer unreadable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from checkrein.errors import MisuseError
from checkrein.models.http.client import Response, Timeouts, client
from checkrein.models.registry import is_address, split_url

MARK: Final = "checkrein-"
"""How the secret in an address begins, by which another gateway is recognised."""

SECRET_HEADER: Final = "x-checkrein-secret"
NO_SECRET: Final = "-"
"""What stands in an address in place of the secret, where that comes in a header: for programs that have to be told the
address in their arguments, which everybody on a machine can read."""

TIMEOUTS: Final = Timeouts(connect=30.0, first_byte=3600.0, between_bytes=600.0)
"""How long to wait is for the program to say, which has its own patience; but some are told to have none with a stream,
so that they survive a pause."""


class Provider(NamedTuple):
    """Who may be asked through the gateway."""

    path: str
    """What its addresses begin with here."""
    variables: tuple[str, ...]
    """Where programs look for its address. The first one that is set says where requests go on to."""
    address: str


# fmt: off
PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai":    Provider("openai/v1", ("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    "anthropic": Provider("anthropic", ("ANTHROPIC_BASE_URL",), "https://api.anthropic.com"),
    "gemini":    Provider("gemini", ("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
                          "https://generativelanguage.googleapis.com"),
}
# fmt: on

_DROPPED: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        SECRET_HEADER,
    }
)
"""What is about one connection, and what asks for an answer that could not be read."""

_DROPPED_FROM_ANSWERS: Final = _DROPPED | {"content-encoding", "date", "server"}


def upstreams_of(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The address of every provider: as given, or what its variable holds, or its own. Raises `MisuseError`."""
    unknown = sorted(given.keys() - PROVIDERS.keys())
    if unknown:
        raise MisuseError(f"There is no provider {unknown[0]!r} for the gateway; it has {', '.join(PROVIDERS)}.")
    found: dict[str, str] = {}
    for name, provider in PROVIDERS.items():
        held = next((value for one in provider.variables if (value := environment.get(one, "").strip())), "")
        address = given.get(name, held) or provider.address
        if not is_address(address):
            what = f"The upstream of {name}" if name in given else f"What {provider.variables[0]} holds"
            raise MisuseError(f"{what} is no address: it must begin with http:// or https://.")
        found[name] = address.rstrip("/")
    return found


def secret_in(address: str) -> str:
    """The secret that an address of a gateway holds."""
    return address.split("/")[3]


def is_gateway(address: str) -> bool:
    """Whether `address` is that of a gateway like this one."""
    return f"/{MARK}" in address


def target(address: str, rest: str, query: str) -> str:
    """Where a request for `rest` below a provider's prefix goes on to."""
    parts = split_url(address)
    assert parts is not None, "it was looked at before"
    queries = "&".join(one for one in (parts.query, query) if one)
    return parts._replace(
        path=f"{parts.path.rstrip('/')}/{rest}" if rest else parts.path or "/", query=queries
    ).geturl()


def request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _DROPPED}


def answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _DROPPED_FROM_ANSWERS}


async def send(provider: str, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
    """The response as soon as its head is there. Raises `ModelUnavailable`."""
    return await client().request(method, url, headers, body, who=provider, timeouts=TIMEOUTS)
