from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, Json, Store


def ps(
    all_runs: Annotated[bool, typer.Option("--all", help="Finished runs too.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many runs at most.")] = 50,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """List the runs: those that wait for you first."""
    from checkrein.cli.listing import list_runs

    list_runs(store, all_runs=all_runs, limit=limit, as_json=json)
