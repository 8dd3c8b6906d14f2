"""Reading `Host` and `Origin`, strictly, and knowing which of them are our own.

A browser that was led here by a name that points to this machine (DNS rebinding) says that name in `Host`; so a
request is only heard under a name that this server goes by. Whatever is not written the one plain way is not
recognised: no user, no trailing dot, no escapes, no other spelling of an address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

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
