from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, Json, Store


def stops(
    reason: Annotated[str | None, typer.Option("--reason", help="Only stops whose reason has this text in it.")] = None,
    flagged: Annotated[bool, typer.Option("--flagged", help="Only stops of runs that a watcher flagged.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many stops at most, the newest.")] = 100,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """List every stop: when, who, why, and what was on show.

    The last text shown by then and the nearest flag of a watcher stand beside it. What checkrein stopped by itself is
    listed too: a cap that was reached, a watcher that acted.
    """
    from checkrein.cli.stopping import list_stops

    list_stops(store, reason=reason, flagged=flagged, limit=limit, as_json=json)
