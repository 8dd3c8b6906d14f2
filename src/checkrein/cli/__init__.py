"""Control in a terminal: one module per command in `commands`, beside it what they share.

A command is loaded when it is used, so that a verb is as quick as it can be.
"""

from __future__ import annotations

import io
import os
import sys


def main(arguments: list[str] | None = None) -> None:
    """The program `checkrein`. Never returns: it exits with a code that says how it went."""
    given = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a character stops nobody from being told
        sys.stdout.reconfigure(errors="replace")
    if given[:1] == ["halt"] and not {"-h", "--help"} & set(given) and "_CHECKREIN_COMPLETE" not in os.environ:
        from checkrein.cli.halt import run as halt  # the kill switch waits for nothing that it does not need

        sys.exit(halt(given[1:]))
    from checkrein.cli.app import run

    sys.exit(run(given))
