"""The program `checkrein`: its commands, and what becomes of an error.

A command's module is loaded when the command is used, so that a verb does not wait for what another command needs.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from checkrein.cli import completion, output
from checkrein.cli.output import INTERNAL, INTERRUPTED, WRONG_INPUT
from checkrein.errors import CheckreinError


class Listed(NamedTuple):
    """A command, as it is known before its module is loaded."""

    name: str
    module: str
    """In `checkrein.cli.commands`."""
    help: str

    def load(self) -> click.Command:
        module = import_module(f"checkrein.cli.commands.{self.module}")
        command = getattr(module, self.name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


# fmt: off
COMMANDS: Final[Mapping[str, tuple[Listed, ...]]] = {
    "Begin": (
        Listed("new",        "new",               "Write a small agent to begin with."),
        Listed("demo",       "demo",              "See it work, on a page, without key or network."),
        Listed("run",        "run",               "Run an agent, attached to this terminal."),
        Listed("exec",       "exec",              "Run a program of any kind, such as a coding agent, as a run."),
        Listed("serve",      "operate.serve",
               "Serve agents: a page to start and stop their runs, and the API behind it."),
        Listed("worker",     "operate.worker",    "Drive the runs of agents, for all who share the store."),
        Listed("start",      "start",             "Start a run on a server."),
        Listed("fork",       "fork",              "Go on otherwise from a finished step of a run, as a new run."),
    ),
    "Look": (
        Listed("ps",         "ps",                "List the runs: those that wait for you first."),
        Listed("watch",      "watch",             "Look at a run live, whichever process it lives in."),
        Listed("stops",      "stops",             "List every stop: when, who, why, and what was on show."),
        Listed("workers",    "operate.workers",   "List the workers that drive runs of a store."),
        Listed("doctor",     "operate.doctor",    "Say what could not be stopped or undone here, and why."),
    ),
    "Steer": (
        Listed("pause",      "verbs",             "Stop the spending and hold the context."),
        Listed("resume",     "verbs",             "Go on exactly there, with an instruction if you like."),
        Listed("redirect",   "verbs",             "Rewrite the next step; finished work is kept."),
        Listed("cancel",     "verbs",             "Stop everything now and undo what is open."),
        Listed("ask",        "verbs",             "Ask a side question without disturbing the run."),
    ),
    "Answer": (
        Listed("approve",    "verbs",             "Let a call happen that waits for your consent."),
        Listed("deny",       "verbs",             "Refuse a call that waits for your consent."),
        Listed("resolve",    "verbs",             "Say what became of a call that is in doubt."),
        Listed("abort",      "verbs",             "Stop one call in flight; the run goes on."),
        Listed("retry-undo", "verbs",             "Try once more to undo what a cancel had to leave."),
    ),
    "Operate": (
        Listed("halt",       "operate.halts",
               "The kill switch: nothing begins in the scope, on any host, until it is reset."),
        Listed("reset",      "operate.halts",     "Lift a halt. Nothing is resumed by it."),
        Listed("halts",      "operate.halts",     "List what is halted: who, why and since when."),
        Listed("bury",       "operate.workers",   "Say that a worker is dead: what it left in doubt is answered for."),
    ),
    "Prove": (
        Listed("evidence",   "operate.evidence",
               "Write what a run did and who stopped it as a bundle that verifies itself."),
        Listed("verify",     "operate.evidence",  "Say whether a bundle of evidence is whole, and who has signed it."),
        Listed("heads",      "operate.evidence",  "Write what was signed so far, to be published or kept elsewhere."),
        Listed("export",     "operate.retention", "Write a run as JSON lines."),
        Listed("prune",      "operate.retention", "Delete old runs whole; a signed tombstone of each stays."),
    ),
    "Admit": (
        Listed("token",      "operate.token",     "Say who may see and steer runs over HTTP: create, list, revoke."),
    ),
    "Set up": (
        Listed("store",      "operate.store",
               "Make, bring up to date and check the tables of a store in PostgreSQL."),
        Listed("completion", "completion",
               "Print what a shell must read to complete commands, runs and agents."),
    ),
}
# fmt: on
"""Under the heads of the help. The words are those of the commands; a test compares them."""

_NOT_CONFIGURED: Final = frozenset({"new", "demo", "completion", "store", "verify"})
"""Commands that are not about the agents and the runs of this project."""

_BY_NAME: Final = {one.name: one for several in COMMANDS.values() for one in several}


ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "show": ("watch", "--plain"),
    "logs": ("watch", "--plain"),
    "list": ("ps",),
    "stop": ("cancel",),
}
"""What others call a command."""

_ELSEWHERE: Final[Mapping[str, str]] = {
    "kill": "`checkrein cancel` ends a run and all it started, and undoes what is open; `halt` is the kill switch.",
}
"""What is meant by words that name no command."""

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "begin": ("run",), "continue": ("resume", "run"), "unpause": ("resume",), "hold": ("pause",), "end": ("cancel",),
    "quit": ("cancel",), "terminate": ("cancel",), "steer": ("redirect",), "tell": ("redirect", "resume"),
    "attach": ("watch",), "tail": ("watch",), "status": ("ps",), "ls": ("ps",), "runs": ("ps",), "init": ("new",),
    "create": ("new",), "server": ("serve",), "check": ("doctor",), "accept": ("approve",), "allow": ("approve",),
    "reject": ("deny",), "refuse": ("deny",), "undo": ("cancel", "retry-undo"), "login": ("token",),
    "branch": ("fork",), "rewind": ("fork",), "restart": ("fork", "run"),
}  # fmt: skip


class _Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_BY_NAME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        listed = _BY_NAME.get(ALIASES.get(cmd_name, (cmd_name,))[0])
        return None if listed is None else listed.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        name, *options = ALIASES.get(name, (name,))
        if name not in _BY_NAME and not ctx.resilient_parsing:
            raise click.UsageError(_no_command(name), ctx)
        return super().resolve_command(ctx, [name, *options, *rest])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, under the heads they belong to."""
        for head, commands in COMMANDS.items():
            with formatter.section(head):
                formatter.write_dl([(one.name, one.help) for one in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without loading any of them."""
        fitting = [one for one in _BY_NAME.values() if one.name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(one.name, help=one.help) for one in fitting] + options


def _no_command(name: str) -> str:
    if name in _ELSEWHERE:
        return f"There is no command {name!r}. {_ELSEWHERE[name]}"
    meant = _SYNONYMS.get(name) or difflib.get_close_matches(name, [*_BY_NAME, *ALIASES])
    guess = f" Did you mean {' or '.join(meant)}?" if meant else ""
    return f"There is no command {name!r}.{guess}"


@click.group(
    "checkrein",
    cls=_Program,
    epilog="Begin with `checkrein demo`, or `checkrein new`. Every command explains itself with --help.",
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(
    None, "-V", "--version", package_name="checkrein", message="checkrein %(version)s", help="Print the version."
)
@click.pass_context
def program(context: click.Context) -> None:
    """Pause, redirect and cancel for Python agents, where stop means stop."""
    from checkrein import logs
    from checkrein.cli.config import configured

    context.with_resource(logs.configured())  # as the environment says; some commands have options for it too
    if not context.resilient_parsing:
        values = dict(configured().values)
        inner = dict.fromkeys(("create", "list", "revoke", "link"), values)
        context.default_map = {name: values | inner for name in _BY_NAME if name not in _NOT_CONFIGURED}


def run(arguments: list[str]) -> int:
    """Carry out a command line and return its exit code. One sentence for each error, never a traceback."""
    if (instruction := os.environ.get(completion.VARIABLE)) and completion.answer(instruction):
        return 0
    try:
        # Not `program.main`: it has exit codes and words of its own for an interrupt and for a reader that left.
        with program.make_context("checkrein", _spelled_out(arguments)) as context:
            code = program.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except CheckreinError as error:
        return _complain(error.code, error.message, arguments, WRONG_INPUT)
    except click.ClickException as error:
        return _complain("usage", _sentence(error), arguments, WRONG_INPUT)
    except KeyboardInterrupt:
        output.note("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has left. That is no error, and nothing is left to be said.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return 128 + signal.SIGPIPE
    except Exception as error:
        if os.environ.get("CHECKREIN_DEBUG"):
            raise
        sentence = f"{type(error).__name__}: {error}. This is a mistake in Checkrein; CHECKREIN_DEBUG=1 shows where."
        return _complain("internal", sentence, arguments, INTERNAL)
    return code if isinstance(code, int) else 0


def _spelled_out(arguments: list[str]) -> list[str]:
    """`help`, `help COMMAND` and `version`, as options say it; without arguments it explains itself."""
    match arguments:
        case [] | ["help"]:
            return ["--help"]
        case ["help", *command]:
            return [*command, "--help"]
        case ["version"]:
            return ["--version"]
    return [*arguments]


_GUESS: Final = re.compile(r" ?\((Did you mean [^()]*\?)\)$")


def _sentence(error: click.ClickException) -> str:
    """What is wrong with the arguments, on one line."""
    message = _GUESS.sub(r" \1", " ".join(error.format_message().split()))
    return f"{message} See --help." if message.endswith("?") else f"{message.removesuffix('.')}; see --help."


def _complain(code: str, message: str, arguments: list[str], exit_code: int) -> int:
    output.complain(code, message, as_json="--json" in arguments)
    return exit_code
