"""`checkrein start`: a run on a server, which has the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.core.escape import one_line
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.cli.remote import ServerSession


@click.command
@click.argument("agent", metavar="AGENT", help="The name of an agent that the server has.")
@click.argument("goal", metavar="GOAL", help="What the agent is to do.")
@options.thread
@click.option(
    "--continue", "continues", metavar="RUN", help="Go on from where a finished run ended, in the same thread."
)
@options.if_busy
@click.option("--watch", is_flag=True, help="Look at it until it ends. Ctrl-C only leaves.")
@options.as_json
@options.server
def start(
    agent: str,
    goal: str,
    thread: str | None,
    continues: str | None,
    if_busy: options.IfBusy,
    watch: bool,
    as_json: bool,
    server: str | None,
    token: str | None,
) -> int:
    """Start a run on a server.

    The server has the agents; it drives the run whether you look at it or not. Prints the id of the run.
    """
    if not server:
        raise WrongInput(
            "Say on which server, with --server URL or CHECKREIN_SERVER. Here, without one: checkrein run FILE "
            f'"{one_line(goal, 80)}".',
            code="no_server",
        )
    from checkrein.cli.attach import Manner
    from checkrein.cli.remote import follow, with_server

    async def act(session: ServerSession) -> int:
        run = (await session.client.start(agent, goal, thread=thread, continues=continues, if_busy=if_busy)).id
        if watch:
            return await follow(session, run, Manner(json=as_json))
        if as_json:
            output.out_json({"run": run, "agent": agent})
        else:
            output.out(run)
            output.note(f"Look at it with: {output.command(f'watch {run}')}")
        return output.DONE

    return with_server(server, token, act)
