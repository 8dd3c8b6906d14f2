from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Call, Json, Run, Store, who


def deny(
    run: Run = None,
    call: Call = None,
    note: Annotated[str, typer.Option("--note", help="A word for the record.")] = "",
    by: By = "",
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Refuse a call that waits for your consent.

    The agent is told, and goes on without it.
    """
    from checkrein.cli.deciding import decide
    from checkrein.core.words import Decision

    decide(Decision.DENIED, store, run, call, note=note, by=who(by), as_json=json)
