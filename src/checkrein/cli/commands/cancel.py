from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Reason, Run, Store, Wait, who
from checkrein.core.words import Undo


def cancel(
    run: Run = None,
    undo: Annotated[Undo, typer.Option("--undo", help="Undo what is still open, all it did, or nothing.")] = Undo.OPEN,
    reason: Reason = "",
    by: By = "",
    wait: Wait = 35.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Stop everything now and undo what is open.

    Partial work is saved to the thread.
    """
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import find_run
    from checkrein.cli.session import Session, with_store

    async def act(session: Session) -> None:
        name = await find_run(session, run)
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.cancel(name, undo=undo, by=who(by), reason=reason, wait=wait),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
