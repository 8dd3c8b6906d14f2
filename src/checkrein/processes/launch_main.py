"""What becomes the program: takes the terminal that it was given, leaves the network if told to, and then is it.

Started with `-I -S` in a session of its own, so that the number of this process is that of the program and its group. A
session takes a controlling terminal only from inside, and only a process with one thread may leave its namespaces,
hence this step. Standard library only.

Sealed, it has a network of its own with nothing in it but loopback. There it listens where the gateway is expected, and
sends that socket back: a socket belongs to the network it was made in, whoever holds it, so whoever started this can
answer there without any process inside.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import termios

NOT_SEALED = 125
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1


def main(arguments: list[str]) -> None:
    """`[--terminal] [--sealed LINE PORT] -- [FILE ARGUMENTS…]`: become FILE; without one, only try.

    Exits with 125 where it cannot be sealed, and with 126 or 127 where FILE cannot be executed.
    """
    cut = arguments.index("--")
    options, command = arguments[:cut], arguments[cut + 1 :]
    if "--terminal" in options:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if "--sealed" in options:
        line, port = map(int, options[options.index("--sealed") + 1 :][:2])
        _seal(line, port)
    # Python ignores these, and a program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if command:
        _become(command)


def _become(command: list[str]) -> None:
    try:
        os.execv(command[0], command[1:])
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def _seal(line: int, port: int) -> None:
    """Leave the network. Where `line` is a socket, the one that listens at `port` inside is sent over it."""
    try:
        _leave_network()
        if line >= 0:
            with socket.socket(fileno=line) as to, socket.create_server(("127.0.0.1", port)) as inside:
                socket.send_fds(to, [b"."], [inside.fileno()])
    except OSError as error:
        print(error.strerror, file=sys.stderr)
        sys.exit(NOT_SEALED)


def _leave_network() -> None:
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    # Root needs no user namespace, and may be where there can be none.
    if user != 0 or libc.unshare(_NEW_NET) != 0:
        if libc.unshare(_NEW_USER | _NEW_NET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lo:
        asked = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(lo, _GET_FLAGS, asked))
        fcntl.ioctl(lo, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


if __name__ == "__main__":
    main(sys.argv[1:])
