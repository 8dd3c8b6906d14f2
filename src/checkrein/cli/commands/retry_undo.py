from __future__ import annotations

from checkrein.cli.options import DEFAULT_STORE, By, Call, Json, Run, Store, who


def retry_undo(
    run: Run = None,
    call: Call = None,
    by: By = "",
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Try once more to undo what a cancel had to leave."""
    from checkrein.cli.deciding import try_undo_again

    try_undo_again(store, run, call, by=who(by), as_json=json)
