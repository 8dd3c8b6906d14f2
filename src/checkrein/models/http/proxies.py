"""Which proxy the environment wants for an address: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.

An address on this machine is never asked for through a proxy.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

import msgspec

from checkrein.errors import ModelUnavailable


class Through(msgspec.Struct, frozen=True):
    """What sends a request through a proxy: options of the HTTP library, and headers."""

    options: Mapping[str, Any] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})


_DIRECTLY: Final = Through()


def proxy_for(url: str, who: str) -> Through:
    """How to ask for `url`. The environment is read once for each."""
    proxy = _proxy(url)
    if not proxy:
        return _DIRECTLY
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelUnavailable(
            f"{who} cannot be reached through the proxy that the environment names: it is none that speaks HTTP.",
            reason="proxy",
            may_retry=False,
            remedy="Set HTTPS_PROXY to an address that begins with http://, or name the host in NO_PROXY.",
        )
    options: dict[str, Any] = {"proxy": parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()}
    if parts.username is None:
        return Through(options)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    # A tunnel is asked for in a request of its own, which has headers of its own.
    return Through({**options, "proxy_headers": header}) if url.startswith("https:") else Through(options, header)


@lru_cache(maxsize=256)
def _proxy(url: str) -> str:
    parts = urlsplit(url)
    if _is_here(parts.hostname or ""):
        return ""
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    is_direct = proxy_bypass_environment(parts.netloc.rpartition("@")[2], proxies)
    return "" if is_direct else proxy


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
