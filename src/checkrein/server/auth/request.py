"""A request as the gate reads it: only what its headers say, each in one plain way or not at all.

Counting wrong tokens, to keep a flood of them cheap.

A token has 256 bits: counting protects nobody's token, only the log and the processor. So it may never be in the way: a
valid token is looked up first and is not counted, and a stop is answered the plain way however often it was refused.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote_plus

from checkrein.server.auth.policy import Host, Origin, Policy, host_of, is_same, origin_of
from checkrein.server.auth.token_store import SESSION, TOKEN

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
OWN_SITE: Final = frozenset({None, "same-origin", "none"})
"""What `Sec-Fetch-Site` says of our own page, of an address that was typed, and of a program."""


class RequestInfo:
    """One request. Every property is read from the headers when it is first asked for."""

    def __init__(self, scope: Mapping[str, Any], policy: Policy) -> None:
        self._policy = policy
        self._headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        self.method: str = scope["method"]
        self.root: str = scope.get("root_path", "")
        path: str = scope["path"]
        self.path = path.removeprefix(self.root) if path.startswith(f"{self.root}/") else path
        self._query: bytes = scope.get("query_string", b"")
        self._peer: str = (scope.get("client") or ("", 0))[0]
        self._scheme: str = scope.get("scheme", "http")

    def all(self, name: str) -> list[str]:
        """Every header of this name, as it was sent."""
        return self._headers.get(name, [])

    def one(self, name: str) -> str | None:
        """The only header of this name; None where there is none, or more than one."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None

    # -- where to, and from where

    @cached_property
    def host(self) -> Host | None:
        text = self.one("host")
        return None if text is None else host_of(text)

    @property
    def has_origin(self) -> bool:
        return bool(self.all("origin"))

    @cached_property
    def origin(self) -> Origin | None:
        """None where there is none, and also where it is not one: look at `has_origin`."""
        text = self.one("origin")
        return None if text is None else origin_of(text)

    @cached_property
    def is_own_origin(self) -> bool:
        """A page of this very server asks."""
        if self.origin is None or self.host is None:
            return False
        return is_same(self.origin, self.host, is_secure=self.is_secure)

    @cached_property
    def is_foreign(self) -> bool:
        """A page asks that is not one of ours, or will not say what it is."""
        return self.has_origin and not self.is_own_origin

    @cached_property
    def fetch_site(self) -> str | None:
        found = self.all("sec-fetch-site")
        return None if not found else found[0].lower() if len(found) == 1 else "unclear"

    @cached_property
    def is_secure(self) -> bool:
        if self._policy.believes(self._peer):
            said = ",".join(self.all("x-forwarded-proto")).split(",")[-1].strip().lower()
            if said in ("http", "https"):
                return said == "https"
        return self._scheme == "https"

    @cached_property
    def address(self) -> str:
        """Whose request it is: the peer, or whom a proxy that is believed names."""
        address = self._peer
        for said in reversed(",".join(self.all("x-forwarded-for")).split(",")):
            if not self._policy.believes(address) or not said.strip():
                break
            address = said.strip()
        return address

    # -- what for

    @property
    def is_safe(self) -> bool:
        return self.method in SAFE

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/") or self.path in ("/api", "/session")

    @property
    def is_preflight(self) -> bool:
        return self.method == "OPTIONS" and bool(self.all("access-control-request-method"))

    @cached_property
    def has_body(self) -> bool:
        return bool(self.all("transfer-encoding")) or any(length != "0" for length in self.all("content-length"))

    @cached_property
    def body_bytes(self) -> int:
        """How long its body says it is; 0 where it does not say."""
        lengths = [int(length) for length in self.all("content-length") if length.isdecimal()]
        return max(lengths, default=0)

    @cached_property
    def is_json(self) -> bool:
        text = self.one("content-type")
        return text is not None and text.partition(";")[0].strip().lower() == "application/json"

    @cached_property
    def has_secret_in_address(self) -> bool:
        """Where logs, histories and other pages would keep it."""
        text = unquote_plus(self._query.decode("latin-1"))
        names = {part.partition("=")[0].lower() for part in text.split("&")}
        return any(prefix in text or prefix in self.path for prefix in (TOKEN, SESSION)) or bool(
            names & {"token", "access_token", "bearer", "authorization"}
        )

    # -- who

    @cached_property
    def bearer(self) -> str | None:
        """The token it carries in `Authorization`."""
        scheme, _, token = (self.one("authorization") or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token.strip() else None

    @property
    def has_cookies(self) -> bool:
        return bool(self.all("cookie"))

    @cached_property
    def cookie_name(self) -> str:
        """Cookies know no ports: so that two servers on one machine do not put out each other's, the name does."""
        port = (self.host.port if self.host else None) or (443 if self.is_secure else 80)
        return f"{'__Host-' if self.is_secure and not self.root else ''}checkrein_{port}"

    @cached_property
    def sessions(self) -> list[str]:
        """Every session cookie it carries. Another server of the same name can add some of its own."""
        pairs = [pair.strip().partition("=") for line in self.all("cookie") for pair in line.split(";")]
        return [value for name, _, value in pairs if name == self.cookie_name][:8]

    def set_cookie(self, value: str, seconds: float) -> str:
        """The header that gives the browser its session, or takes it away with 0 seconds."""
        parts = [
            f"{self.cookie_name}={value}",
            f"Path={self.root or '/'}",
            f"Max-Age={max(0, int(seconds))}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        return "; ".join(parts + (["Secure"] if self.is_secure else []))


ALLOWED: Final = 30
"""Wrong tokens from one address ..."""
WINDOW_SECONDS: Final = 60.0
"""... in this time."""
_ADDRESSES: Final = 1024
_STOPS: Final = re.compile(r"/api/(runs/[^/]+/cancel|halt)")


def is_stop(path: str) -> bool:
    """What no limit ever touches."""
    return _STOPS.fullmatch(path) is not None


class Attempts:
    """How often each address was wrong lately. Keeps a bounded number of addresses, the latest."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def was_wrong(self, address: str) -> float:
        """Count a wrong token. Returns how many seconds this address should keep still: 0 for most."""
        now = self._now()
        began, count = self._wrong.pop(address, (now, 0))
        if now - began >= WINDOW_SECONDS:
            began, count = now, 0
        self._wrong[address] = began, count + 1
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        return began + WINDOW_SECONDS - now if count >= ALLOWED else 0.0
