from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli.options import By, Json, Plain


def demo(
    tour: Annotated[
        bool, typer.Option("--tour", help="Plays by itself in a minute: a naive loop, then Checkrein.")
    ] = False,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="In this terminal instead of a page; so too with --plain and --json.")
    ] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Without the pauses that make it pleasant to watch.")] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where its data and its journal go. A temporary one if left out.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, help="The port of the page. 8420 if left out, or else a free one.")
    ] = None,
    opens: Annotated[
        bool | None,
        typer.Option("--open/--no-open", help="Open the page in a browser. Where there is one, if left out."),
    ] = None,
    plain: Plain = False,
    json: Json = False,
    by: By = "",
    store: Annotated[
        str | None,
        typer.Option("--store", envvar="CHECKREIN_STORE", help="Where the journal is kept. In the folder if left out."),
    ] = None,
) -> None:
    """See it work, on a page, without key or network.

    An agent looks for customers who are about to leave, slowly enough for you to pause, redirect and cancel it.
    """
    from checkrein.cli import demonstrating

    if tour:
        raise typer.Exit(demonstrating.play_tour(fast=fast))
    if terminal or plain or json:
        raise typer.Exit(demonstrating.play(folder, store, fast=fast, json=json, plain=plain, by=by))
    raise typer.Exit(demonstrating.show(folder, store, fast=fast, port=port, opens=opens))
