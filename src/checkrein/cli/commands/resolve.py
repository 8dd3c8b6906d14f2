from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Store, who


def resolve(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] [CALL] ANSWER",
            help="The run, the call, and what happened: happened, did_not_happen or undo.",
        ),
    ],
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="With `happened`: what it returned, as JSON.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="A word for the record.")] = "",
    by: By = "",
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Say what became of a call that is in doubt.

    `happened` records it as done, with a --result if it had one; `did_not_happen` has it done now, if the run waits for
    it; `undo` calls its undo.
    """
    from checkrein.cli.deciding import answer

    answer(store, words, result=result, note=note, by=who(by), as_json=json)
