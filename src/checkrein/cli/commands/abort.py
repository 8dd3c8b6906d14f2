from __future__ import annotations

from checkrein.cli.options import DEFAULT_STORE, By, Call, Json, Reason, Run, Store, Wait, who


def abort(
    run: Run = None,
    call: Call = None,
    reason: Reason = "",
    by: By = "",
    wait: Wait = 5.0,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Stop one call in flight; the run goes on.

    For example the one that a pause waits for.
    """
    from checkrein.cli.asking import ask_for
    from checkrein.cli.naming import find_call, find_run
    from checkrein.cli.session import Session, with_store
    from checkrein.core.words import CallKind

    async def act(session: Session) -> None:
        name = await find_run(session, run)
        live = (await session.journal.load(name)).live
        stoppable = {one: call.name for one, call in live.items() if call.kind is not CallKind.UNDO}
        chosen = find_call(name, call, stoppable, what="is in flight")
        await ask_for(
            session,
            name,
            lambda session, name, wait: session.control.abort(name, chosen, by=who(by), reason=reason, wait=wait),
            wait=wait,
            as_json=json,
        )

    with_store(store, act)
