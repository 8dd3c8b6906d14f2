"""`checkrein demo`: the agent of `checkrein.demo` on a page or attached to this terminal."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from checkrein.cli import options, output
from checkrein.errors import WrongInput


@click.command
@click.option("--terminal", is_flag=True, help="In this terminal instead of a page; so too with --plain and --json.")
@click.option(
    "--real",
    is_flag=True,
    help="A real language model that writes, and a meter of its CPU here. Needs two packages (127 MB), says which.",
)
@click.option("--fast", is_flag=True, help="Without the pauses that make it pleasant to watch.")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=options.FILE,
    help="Where its data and its journal go. A temporary one if left out.",
)
@click.option(
    "--port", metavar="PORT", type=options.PORT, help="The port of the page. 8420 if left out, or else a free one."
)
@click.option(
    "--open/--no-open", "opens", default=None, help="Open the page in a browser. Where there is one, if left out."
)
@options.plain
@options.as_json
@options.by
@click.option(
    "--store",
    metavar="ADDRESS",
    envvar=options.STORE_VARIABLE,
    show_envvar=True,
    help="Where the journal is kept. In the folder if left out.",
)
@options.log_level
@options.log_format
def demo(
    terminal: bool,
    real: bool,
    fast: bool,
    folder: Path | None,
    port: int | None,
    opens: bool | None,
    plain: bool,
    as_json: bool,
    by: str,
    store: str | None,
) -> int:
    """See it work, on a page, without key or network.

    An agent looks for customers who are about to leave, slowly enough for you to pause, redirect and cancel it.
    """
    if real:
        if terminal or plain or as_json:
            raise click.UsageError("--real is shown on a page, with a meter in this terminal.")
        return show_real(folder, store, port=port, opens=opens)
    if terminal or plain or as_json:
        return play(folder, store, fast=fast, json=as_json, plain=plain, by=by)
    return show(folder, store, fast=fast, port=port, opens=opens)


def play(folder: Path | None, store: str | None, *, fast: bool, json: bool, plain: bool, by: str) -> int:
    """Run the agent in `folder`. A temporary one is gone afterwards, unless the run is to be taken up again."""
    from checkrein.cli.attach import Manner
    from checkrein.cli.commands.run import run_agent
    from checkrein.demo import GOAL, agent

    manner = Manner(json=json, plain=plain, is_terminal=output.is_terminal(), by=by, can_be_taken_up=False)
    with _place(folder, store) as (folder, store):
        if not json:
            output.note(f"From another terminal: {output.command('ps')}  (or pause, redirect, cancel, ask, watch)")
        return run_agent(agent(folder, pace=_pace(fast)), GOAL, store, manner)


def show(folder: Path | None, store: str | None, *, fast: bool, port: int | None, opens: bool | None) -> int:
    """Serve the agent on a page, for a person to start and to stop it."""
    from checkrein.cli.commands.operate.serve import PORT, Wanted, has_browser, serve_until_ended
    from checkrein.server.processes.driver_main import command_for_demo

    is_kept = folder is not None or store is not None
    with _place(folder, store) as (folder, store):
        wanted = Wanted(
            is_kept=is_kept,
            store=store,
            command=command_for_demo(store, folder, _pace(fast)),
            port=PORT if port is None else port,
            may_choose_port=port is None,
            opens=has_browser() if opens is None else opens,
        )
        return serve_until_ended(wanted)


def show_real(folder: Path | None, store: str | None, *, port: int | None, opens: bool | None) -> int:
    """Serve a writer on a real model, and show here what its engine takes of the processor."""
    from checkrein.cli.commands.operate.serve import PORT, Wanted, has_browser, serve_until_ended
    from checkrein.demo import engine
    from checkrein.server.processes.driver_main import command_for_files

    engine.require()
    file = Path(engine.__file__).with_name("writer.py")
    is_kept = folder is not None or store is not None
    with _place(folder, store) as (folder, store), engine.engine() as (address, pid):
        os.environ["CHECKREIN_DEMO_ENGINE"] = address
        output.out("Ask the writer for a long story on the page, then cancel: the meter falls to 0.")
        with engine.meter(pid, _line()):
            return serve_until_ended(
                Wanted(
                    is_kept=is_kept,
                    store=store,
                    command=command_for_files(store, file),
                    port=PORT if port is None else port,
                    may_choose_port=port is None,
                    opens=has_browser() if opens is None else opens,
                )
            )


def _line() -> Callable[[str], object]:
    """Shows one line over and over; where there is no terminal, only when it says something else."""
    if output.is_terminal():
        return lambda line: print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
    last = [""]

    def show(line: str) -> None:
        at_rest = line.endswith("at rest")
        if str(at_rest) != last[0]:
            last[0] = str(at_rest)
            print(line, file=sys.stderr, flush=True)

    return show


def _pace(fast: bool) -> float:
    return 0.1 if fast else 1.0


@contextmanager
def _place(folder: Path | None, store: str | None) -> Iterator[tuple[Path, str]]:
    """Where the demo's data and its journal are. A temporary folder is gone afterwards."""
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="checkrein-demo-")))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(folder, error.strerror or str(error)) from None
        if not os.access(folder, os.W_OK):
            raise _unusable(folder, "it may not be written to")
        if store is None:
            store = f"sqlite:///{folder.absolute()}/runs.db"
            output.remember_option("--store", store)
        yield folder, store


def _unusable(folder: Path, why: str) -> WrongInput:
    return WrongInput(
        f"The demo cannot use the folder {folder}: {why}. Name another one with --folder, or leave it out.",
        code="folder_not_writable",
    )
