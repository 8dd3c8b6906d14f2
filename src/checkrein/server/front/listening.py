"""The socket that a server listens on, and what is said when there is none to be had."""

from __future__ import annotations

import errno
import socket
from typing import Final

from checkrein.errors import WrongInput

BACKLOG: Final = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 chooses a free one. Raises `WrongInput` with what would help."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise WrongInput(
            f"{host} is not an address of this machine; leave --host out to be reached from here only.",
            code="host_name",
        ) from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from None
    listening.setblocking(False)
    return listening


def _refused(host: str, port: int, error: OSError) -> WrongInput:
    if error.errno == errno.EADDRINUSE:
        return WrongInput(
            f"Port {port} of {host} is taken, perhaps by another `checkrein serve`; choose another one with --port, or "
            "let one be found with --port 0.",
            code="port_taken",
        )
    if error.errno == errno.EACCES:
        return WrongInput(
            f"Port {port} may not be used by you; choose one above 1023, such as --port 8420.", code="port_taken"
        )
    return WrongInput(
        f"Nothing can listen on {host}, port {port}: {error.strerror or error}. Leave --host out to be reached from "
        "here only.",
        code="host_name",
    )
