from __future__ import annotations

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Plain, Run, Store, who


def watch(
    run: Run = None,
    plain: Plain = False,
    json: Json = False,
    by: By = "",
    store: Store = DEFAULT_STORE,
) -> None:
    """Look at a run live, whichever process it lives in.

    Ctrl-C only leaves: the run goes on. Exit code: 0 when you leave, else as `checkrein run`.
    """
    from checkrein.cli import saying
    from checkrein.cli.attached import Manner, attach
    from checkrein.cli.naming import find_run
    from checkrein.cli.session import Session, with_store

    manner = Manner(json=json, plain=plain, is_terminal=saying.is_terminal(), by=who(by))

    async def act(session: Session) -> int:
        name = await find_run(session, run)
        return await attach(session.journal, session.control, name, manner)

    raise typer.Exit(with_store(store, act))
