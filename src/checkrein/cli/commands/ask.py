from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Store, Wait, who


def ask(
    words: Annotated[list[str], typer.Argument(metavar="[RUN] QUESTION", help="The run, and what you want to know.")],
    by: By = "",
    wait: Wait = 60.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Ask a side question without disturbing the run.

    It is answered from a copy of the context, without tools.
    """
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import run_and_text
    from checkrein.cli.session import Session, with_store

    async def act(session: Session) -> None:
        name, question = await run_and_text(session, words, "QUESTION")
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.ask(name, question, by=who(by), wait=wait),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
