from __future__ import annotations

from checkrein.cli.options import DEFAULT_STORE, By, Json, Reason, Run, Store, Wait, who


def pause(
    run: Run = None,
    reason: Reason = "",
    by: By = "",
    wait: Wait = 5.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Stop the spending and hold the context.

    The model is cut off; a tool in flight finishes, is stopped or is frozen, as it says itself.
    """
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import find_run
    from checkrein.cli.session import Session, with_store

    async def act(session: Session) -> None:
        name = await find_run(session, run)
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.pause(name, by=who(by), reason=reason, wait=wait),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
