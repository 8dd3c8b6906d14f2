"""Options and arguments that several commands share."""

from __future__ import annotations

import getpass
import os
from typing import Annotated, Final

import typer

from checkrein.cli import hints

DEFAULT_STORE: Final = "sqlite:///.checkrein/runs.db"
STORE_VARIABLE: Final = "CHECKREIN_STORE"


def _remember_store(store: str | None) -> str | None:
    if store not in (None, DEFAULT_STORE, os.environ.get(STORE_VARIABLE)):
        hints.remember_store(str(store))
    return store


Store = Annotated[
    str,
    typer.Option("--store", envvar=STORE_VARIABLE, help="Where the journal is kept.", callback=_remember_store),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines, also in a terminal.")]
Run = Annotated[
    str | None,
    typer.Argument(
        metavar="[RUN]", help="A run: its id, the beginning of it, or `last`; the unfinished one if left out."
    ),
]
Call = Annotated[
    str | None,
    typer.Argument(metavar="[CALL]", help="A call: its id, or its name; the only one that waits if left out."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.")]
By = Annotated[str, typer.Option("--by", help="Who asks. Your login name if left out.", show_default=False)]
Wait = Annotated[float, typer.Option("--wait", min=0, help="How many seconds to wait for the receipt.")]


def who(by: str) -> str:
    """Who asks for a verb."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
