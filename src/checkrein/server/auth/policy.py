"""What a server was told about its surroundings, and the headers that every answer carries.

Reading `Host` and `Origin`, strictly, and knowing which of them are our own.

A browser that was led here by a name that points to this machine (DNS rebinding) says that name in `Host`; so a
request is only heard under a name that this server goes by. Whatever is not written the one plain way is not
recognised: no user, no trailing dot, no escapes, no other spelling of an address.

Whether a server may listen where it was told to.
"""

from __future__ import annotations

import ipaddress
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from checkrein.control.evidence.story import STYLE
from checkrein.errors import WrongInput

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""The names under which this machine reaches itself."""
ANY: Final = "*"
"""In a list of hosts: every name is ours. For an application that has such a list itself."""

_HOST: Final = re.compile(
    r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9_.-]{0,251}[a-z0-9])?)(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<host>[^/]+)", re.ASCII)
_PORTS: Final = {"http": 80, "https": 443}


class Host(NamedTuple):
    """A name and the port that was said with it, if any."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


class Origin(NamedTuple):
    """Where a web page comes from, with its port spelled out."""

    scheme: str
    name: str
    port: int

    def __str__(self) -> str:
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.name}{port}"


def host_of(text: str) -> Host | None:
    """The host that a `Host` header means; None for anything but the plain way to write one."""
    found = _HOST.fullmatch(text.lower()) if text.isascii() else None
    if found is None or ".." in found["name"]:
        return None
    port = found["port"]
    if port is not None and not 0 < int(port) < 65536:
        return None
    return Host(found["name"], None if port is None else int(port))


def origin_of(text: str) -> Origin | None:
    """The origin that an `Origin` header means; None for `null` and for anything but the plain way to write one."""
    found = _ORIGIN.fullmatch(text.lower()) if text.isascii() else None
    host = host_of(found["host"]) if found else None
    if found is None or host is None:
        return None
    return Origin(found["scheme"], host.name, host.port or _PORTS[found["scheme"]])


def is_same(origin: Origin, host: Host, *, is_secure: bool) -> bool:
    """Whether a page of `origin` is a page of this server, which was just addressed as `host`.

    Over TLS only a page that came over TLS is. Without it both are: a proxy may have taken the TLS off.
    """
    if is_secure and origin.scheme != "https":
        return False
    return origin.name == host.name and origin.port == (host.port or _PORTS[origin.scheme])


class Hosts:
    """The names this server goes by: those of loopback, and those it was given."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = tuple(names)
        self._any = ANY in given
        self._known = {Host(name) for name in LOOPBACK} | {_configured(name) for name in given if name != ANY}

    def knows(self, host: Host) -> bool:
        """A name that was given without a port is ours on every port: it may be forwarded from another one."""
        return self._any or host in self._known or Host(host.name) in self._known


def _configured(text: str) -> Host:
    try:
        is_bare_v6 = ipaddress.ip_address(text).version == 6
    except ValueError:
        is_bare_v6 = False
    host = host_of(f"[{text}]" if is_bare_v6 else text)
    if host is None:
        raise WrongInput(
            f"{text!r} is not the name of a host; write agents.example.com, agents.example.com:8443 or 192.0.2.7.",
            code="host_name",
        )
    return host


def configured_origin(text: str) -> str:
    """An origin as a person writes it, in the one way that browsers write it. Raises `WrongInput`."""
    origin = origin_of(text.removesuffix("/"))
    if origin is None:
        raise WrongInput(
            f"{text!r} is not the origin of a web page; write https://app.example.com or http://localhost:3000.",
            code="origin_name",
        )
    return str(origin)


def is_loopback(host: str) -> bool:
    """Whether a server that listens on `host` is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


BODY_BYTES: Final = 1024 * 1024
"""More than any instruction needs."""

_CONTENT: Final = (
    "default-src 'none'",
    "script-src 'self'",
    # The page that tells the story of a stop carries its own looks, because it is also a file that stands alone.
    f"style-src 'self' 'sha256-{b64encode(sha256(STYLE.encode()).digest()).decode()}'",
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


EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})


def check_exposure(host: str, *, token: object, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The names that a server listening on `host` goes by, for `Policy(hosts=…)`.

    Raises `WrongInput` beyond loopback where there is no token, or where nobody said under which name it is reached.
    """
    Hosts(names)  # raises for a name that is none
    if is_loopback(host):
        return tuple(names) if host.lower() in ("localhost", "127.0.0.1", "::1") else (host, *names)
    if not token:
        raise WrongInput(
            f"Listening on {host or 'every address'} lets other machines in, and this server has no token. Listen on "
            "127.0.0.1, or set CHECKREIN_TOKEN.",
            code="exposed",
        )
    if host not in EVERYWHERE:
        return (host, *names)
    if not names:
        raise WrongInput(
            f"Listening on {host or 'every address'} lets other machines in; say under which names they reach this "
            "server, as in --allow-host agents.example.com.",
            code="exposed",
        )
    return tuple(names)


def exposure_warning(host: str, *, is_secure: bool = False) -> str | None:
    """What to tell whoever starts a server that others can reach."""
    if is_loopback(host) or is_secure:
        return None
    try:
        where = str(ipaddress.ip_address(host))
    except ValueError:
        where = host
    return (
        f"Listening on {where} without TLS: tokens and what agents say can be read on the network. Put a proxy with "
        "TLS in front of it."
    )
