"""Control in a terminal: one module per command in `commands`, beside it what they share.

A command imports what it needs when it runs, so that a verb is as quick as it can be.
"""

from __future__ import annotations

import sys


def main(arguments: list[str] | None = None) -> None:
    """The program `checkrein`. Never returns: it exits with a code that says how it went."""
    from checkrein.cli.app import run

    sys.exit(run(sys.argv[1:] if arguments is None else arguments))
