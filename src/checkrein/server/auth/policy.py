"""What a server was told about its surroundings, and the headers that every answer carries."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from checkrein.errors import WrongInput
from checkrein.server.auth.addresses import Hosts

BODY_BYTES: Final = 1024 * 1024
"""More than any instruction needs."""

_CONTENT: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'self'",
    # Text becomes HTML in one place of the page only, where it passes a list of elements that may be shown.
    "require-trusted-types-for 'script'",
    "trusted-types checkrein-markdown",
)


class Policy:
    """How a server is reached.

    `hosts`: the names it goes by, besides those of loopback. `proxies`: addresses or networks whose `X-Forwarded-For`
    and `X-Forwarded-Proto` are believed; nobody's by default. `frame_ancestors`: origins whose pages may show ours in a
    frame.
    """

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        proxies: Iterable[str] = (),
        frame_ancestors: Iterable[str] = (),
        body_bytes: int = BODY_BYTES,
    ) -> None:
        self.hosts = Hosts(hosts)
        self.body_bytes = body_bytes
        self._proxies = tuple(_network(one) for one in proxies)
        self.headers = _headers(tuple(frame_ancestors))

    def believes(self, address: str) -> bool:
        """Whether what this peer says about others is taken as true."""
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self._proxies)


def _headers(frame_ancestors: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
    ancestors = " ".join(_ancestor(one) for one in frame_ancestors) or "'none'"
    headers = {
        "content-security-policy": "; ".join((*_CONTENT, f"frame-ancestors {ancestors}")),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
    }
    if not frame_ancestors:
        headers["x-frame-options"] = "DENY"
    return tuple((name.encode(), value.encode()) for name, value in headers.items())


def _ancestor(text: str) -> str:
    # It goes into a header as it is; a word with a space or a semicolon in it would be another rule.
    if not text.isascii() or not text.isprintable() or set(text) & set(" ;,"):
        raise WrongInput(
            f"{text!r} is not a source for frame-ancestors; write https://app.example.com.", code="origin_name"
        )
    return text


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise WrongInput(
            f"{text!r} is not the address of a proxy; write 127.0.0.1 or 10.0.0.0/8.", code="proxy_address"
        ) from None
