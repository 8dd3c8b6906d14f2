from __future__ import annotations

import click

from checkrein.cli import options, output
from checkrein.cli.lookup import LAST, find_run
from checkrein.cli.session import Session, StoreSession, with_session
from checkrein.errors import WrongInput


@click.command
@options.run
@options.plain
@options.as_json
@options.by
@options.place
@options.log_level
@options.log_format
def watch(run: str | None, plain: bool, as_json: bool, by: str, place: options.Place) -> int:
    """Look at a run live, whichever process it lives in.

    Ctrl-C only leaves: the run goes on. Where none is unfinished, the newest is shown. Exit code: 0 when you leave,
    else as `checkrein run`.
    """
    from checkrein.cli.attach import Manner, attach

    manner = Manner(json=as_json, plain=plain, is_terminal=output.is_terminal(), by=by)

    async def act(session: Session) -> int:
        name = await _meant(session, run)
        if isinstance(session, StoreSession):
            return await attach(session.journal, session.control, name, manner)
        from checkrein.cli.remote import follow

        return await follow(session, name, manner)

    return with_session(place, act)


async def _meant(session: Session, run: str | None) -> str:
    try:
        return await find_run(session, run)
    except WrongInput as error:
        if error.code != "no_unfinished_run":
            raise
        return await find_run(session, LAST)
