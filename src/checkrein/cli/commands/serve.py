from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, Store


def serve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with agents at its top level.")],
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, help="The port; 0 finds a free one.")] = 8420,
    drivers: Annotated[int, typer.Option("--drivers", metavar="N", min=1, help="How many processes drive runs.")] = 1,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Another name this server goes by, behind a proxy. Repeatable."
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option("--proxy", metavar="ADDRESS", help="A proxy whose X-Forwarded headers are believed. Repeatable."),
    ] = None,
    frame_ancestor: Annotated[
        list[str] | None,
        typer.Option("--frame-ancestor", metavar="ORIGIN", help="Pages that may show this one in a frame. Repeatable."),
    ] = None,
    store: Store = DEFAULT_STORE,
) -> None:
    """Serve agents: a page to start and stop their runs, and the API behind it.

    Ctrl-C pauses what is at work, durably, and ends; it goes on by itself at the next start. A second one ends at once.
    """
    from checkrein.cli.driving import command_for_file
    from checkrein.cli.serving import Wanted
    from checkrein.cli.serving import serve as carry_out

    wanted = Wanted(
        store=store,
        command=command_for_file(store, file),
        file=file,
        host=host,
        port=port,
        drivers=drivers,
        opens=opens,
        allow_hosts=tuple(allow_host or ()),
        proxies=tuple(proxy or ()),
        frame_ancestors=tuple(frame_ancestor or ()),
    )
    raise typer.Exit(carry_out(wanted))
