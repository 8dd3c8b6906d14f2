"""What a program starts before it uses one of its tools: asks the gateway, waits for the answer, and passes it on.

Started with `-I -S` before every tool, so it imports as little as it can. `FILE` holds the address to ask, with its
secret. What was not answered must not happen: where the gateway cannot be asked this exits with 2, by which the program
takes its tool for refused.
"""

from __future__ import annotations

import os
import socket
import sys

REFUSED = 2
"""What a hook exits with whose program is not to go on."""


def main(file: str) -> int:
    try:
        with open(file, encoding="ascii") as kept:
            answer = ask(kept.read().strip(), _all_of(0))
    except (OSError, ValueError) as error:
        print(f"Checkrein was not reached, and has not permitted it: {error}", file=sys.stderr)
        return REFUSED
    os.write(1, answer)
    return 0


def ask(address: str, body: bytes) -> bytes:
    """Post `body` and return what is answered, however long a person takes. Raises `OSError`, `ValueError`."""
    place, _, path = address.removeprefix("http://").partition("/")
    host, _, port = place.partition(":")
    head = f"POST /{path} HTTP/1.0\r\nHost: {place}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.settimeout(None)
        connection.sendall(head.encode() + body)
        got = _all_of(connection.fileno())
    status, _, rest = got.partition(b"\r\n")
    _, ends, answer = rest.partition(b"\r\n\r\n")
    if b" 200 " not in status or not ends:
        raise ValueError(f"it answered {status.decode(errors='replace') or 'nothing'}")
    return answer


def _all_of(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
