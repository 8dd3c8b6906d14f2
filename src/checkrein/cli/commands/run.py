from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, By, Json, Plain, Store


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with an agent at its top level.")],
    goal: Annotated[str | None, typer.Argument(metavar="[GOAL]", help="What the agent is to do.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Which agent, if there are several.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="RUN", help="Take up an unfinished run, instead of starting one; or `last`."),
    ] = None,
    continues: Annotated[
        str | None,
        typer.Option("--continue", metavar="RUN", help="Go on from where a finished run ended, in the same thread."),
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="The conversation this run belongs to.")] = None,
    if_busy: Annotated[
        str, typer.Option("--if-busy", help="When the thread has a live run: queue, redirect or refuse.")
    ] = "queue",
    owner: Annotated[str, typer.Option("--owner", help="Whose run it is.")] = "",
    leave: Annotated[
        bool, typer.Option("--leave", help="Exit when the run is paused or needs you; with code 4.")
    ] = False,
    plain: Plain = False,
    json: Json = False,
    by: By = "",
    store: Store = DEFAULT_STORE,
) -> None:
    """Run an agent, attached to this terminal.

    Ctrl-C pauses and says how to go on; a second one cancels, a third kills this process. Exit code: 0 completed,
    1 failed, 2 wrong input, 3 cancelled, 4 left unfinished.
    """
    from checkrein.cli.running import Wanted, carry_out

    wanted = Wanted(
        file=file,
        goal=goal,
        agent=agent,
        resume=resume,
        continues=continues,
        thread=thread,
        if_busy=if_busy,
        owner=owner,
    )
    raise typer.Exit(carry_out(wanted, store, json=json, plain=plain, leave=leave, by=by))
