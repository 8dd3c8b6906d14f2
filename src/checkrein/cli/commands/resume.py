from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Reason, Run, Store, Wait, who


def resume(
    run: Run = None,
    instruction: Annotated[
        str | None, typer.Argument(metavar="[INSTRUCTION]", help="What to tell the agent as it goes on.")
    ] = None,
    reason: Reason = "",
    by: By = "",
    wait: Wait = 5.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Go on exactly there, with an instruction if you like.

    After a cap was reached, the same allowance is granted again.

    A run whose process has ended is queued until one takes it up: checkrein run FILE --resume RUN.
    """
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import find_run
    from checkrein.cli.session import Session, with_store

    async def act(session: Session) -> None:
        name = await find_run(session, run)
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.resume(name, instruction, by=who(by), reason=reason, wait=wait),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
