"""The program `checkrein`: its commands, and what becomes of an error."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from checkrein.cli import saying
from checkrein.cli.commands.abort import abort
from checkrein.cli.commands.approve import approve
from checkrein.cli.commands.ask import ask
from checkrein.cli.commands.cancel import cancel
from checkrein.cli.commands.demo import demo
from checkrein.cli.commands.deny import deny
from checkrein.cli.commands.doctor import doctor
from checkrein.cli.commands.new import new
from checkrein.cli.commands.pause import pause
from checkrein.cli.commands.ps import ps
from checkrein.cli.commands.redirect import redirect
from checkrein.cli.commands.resolve import resolve
from checkrein.cli.commands.resume import resume
from checkrein.cli.commands.retry_undo import retry_undo
from checkrein.cli.commands.run import run as run_command
from checkrein.cli.commands.serve import serve
from checkrein.cli.commands.stops import stops
from checkrein.cli.commands.token import create, link, list_, revoke, token
from checkrein.cli.commands.watch import watch
from checkrein.cli.exits import INTERNAL, INTERRUPTED, WRONG_INPUT
from checkrein.cli.quick import QuickCommand, QuickGroup
from checkrein.errors import CheckreinError

# fmt: off
COMMANDS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Begin":  (new, demo, run_command, serve),
    "Look":   (ps, watch, stops, doctor),
    "Steer":  (pause, resume, redirect, cancel, ask),
    "Answer": (approve, deny, resolve, abort, retry_undo),
    "Admit":  (token,),
}
GROUPS: Final[dict[Callable[..., None], tuple[Callable[..., None], ...]]] = {
    token: (create, list_, revoke, link),
}
# fmt: on


class _Program(QuickGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands, under the heads they belong to."""
        for head, commands in COMMANDS.items():
            with formatter.section(head):
                formatter.write_dl([(_name(one), (one.__doc__ or "").partition("\n")[0]) for one in commands])


def _name(command: Callable[..., None]) -> str:
    return command.__name__.rstrip("_").replace("_", "-")


app = typer.Typer(
    name="checkrein",
    cls=_Program,
    help="Pause, redirect and cancel for Python agents, where stop means stop.",
    epilog="Begin with `checkrein demo`, or `checkrein new`. Every command explains itself with --help.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _register(command: Callable[..., None]) -> None:
    if command not in GROUPS:
        app.command(_name(command), cls=QuickCommand)(command)
        return
    group = typer.Typer(cls=QuickGroup, rich_markup_mode=None)
    group.callback()(command)
    for one in GROUPS[command]:
        group.command(_name(one), cls=QuickCommand)(one)
    app.add_typer(group, name=_name(command))


for commands in COMMANDS.values():
    for command in commands:
        _register(command)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        saying.out(f"checkrein {version('checkrein')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Pause, redirect and cancel for Python agents, where stop means stop."""


def run(arguments: list[str]) -> int:
    """Carry out a command line and return its exit code. One sentence for each error, never a traceback."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments or ["--help"], prog_name="checkrein", standalone_mode=False)
    except CheckreinError as error:
        return _complain(error.code, error.message, arguments, WRONG_INPUT)
    except KeyboardInterrupt:
        saying.note("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left. That is no error, and nothing is left to be said.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 128 + signal.SIGPIPE
    except Exception as error:
        if hasattr(error, "format_message"):  # what Typer has to say about the arguments
            sentence = f"{error.format_message().removesuffix('.')}; see --help."
            return _complain("usage", sentence, arguments, WRONG_INPUT)
        if isinstance(error, typer.Abort):
            return INTERRUPTED
        if os.environ.get("CHECKREIN_DEBUG"):
            raise
        sentence = f"{type(error).__name__}: {error}. This is a mistake in Checkrein; CHECKREIN_DEBUG=1 shows where."
        return _complain("internal", sentence, arguments, INTERNAL)
    return code if isinstance(code, int) else 0


def _complain(code: str, message: str, arguments: list[str], exit_code: int) -> int:
    saying.complain(code, message, as_json="--json" in arguments)
    return exit_code
