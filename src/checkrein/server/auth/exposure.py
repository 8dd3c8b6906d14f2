"""Whether a server may listen where it was told to."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from checkrein.errors import WrongInput
from checkrein.server.auth.addresses import Hosts, is_loopback

EVERYWHERE: Final = frozenset({"0.0.0.0", "::", ""})


def check_exposure(host: str, *, token: str | None, names: Sequence[str] = ()) -> tuple[str, ...]:
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
