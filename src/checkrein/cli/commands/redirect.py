from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Reason, Store, Wait, who
from checkrein.core.words import When


def redirect(
    words: Annotated[
        list[str], typer.Argument(metavar="[RUN] INSTRUCTION", help="The run, and what the agent is to do next.")
    ],
    when: Annotated[When, typer.Option("--when", help="Stop what is in flight, or let it finish first.")] = When.NOW,
    reason: Reason = "",
    by: By = "",
    wait: Wait = 5.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Rewrite the next step; finished work is kept."""
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import run_and_text
    from checkrein.cli.session import Session, with_store

    async def act(session: Session) -> None:
        name, instruction = await run_and_text(session, words, "INSTRUCTION")
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.redirect(
                name, instruction, when=when, by=who(by), reason=reason, wait=wait
            ),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
