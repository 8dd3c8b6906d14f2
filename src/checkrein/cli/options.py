"""Options and arguments that several commands share."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import click
from click.core import ParameterSource

from checkrein import logs
from checkrein.cli import output
from checkrein.cli.completion import complete_agents, complete_files, complete_runs

DEFAULT_STORE: Final = "sqlite:///.checkrein/runs.db"
STORE_VARIABLE: Final = "CHECKREIN_STORE"
LISTEN_STORE_VARIABLE: Final = "CHECKREIN_LISTEN_STORE"
SERVER_VARIABLE: Final = "CHECKREIN_SERVER"
TOKEN_VARIABLE: Final = "CHECKREIN_TOKEN"
LONGEST_WAIT: Final = 86_400.0
MOST_LISTED: Final = 100_000
MOST_DRIVERS: Final = 256
ENGINES: Final = ("leases", "temporal")

IfBusy = Literal["queue", "redirect", "refuse"]
N = TypeVar("N", int, float)


def who(by: str) -> str:
    """Who asks for a verb."""
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _store(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from checkrein.journal import address_of, shown

    if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        output.remember_option("--store", shown(value))
    return address_of(value)


def _listen_store(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        from checkrein.journal import shown

        output.remember_option("--listen-store", shown(value))
    return value


def _server(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
        output.remember_option("--server", value)
    return value


def _log_level(ctx: click.Context, param: click.Parameter, value: str) -> None:
    logs.configure(level=value)


def _log_format(ctx: click.Context, param: click.Parameter, value: str) -> None:
    logs.configure(format=value)


def _who(ctx: click.Context, param: click.Parameter, value: str) -> str:
    return who(value)


class _Bounded(click.ParamType[N]):
    """A number between two others, both allowed."""

    read: Callable[[Any], N]
    form: str
    """In which form its bounds are shown."""

    def __init__(self, min: N, max: N) -> None:
        self.min: N = min
        self.max: N = max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> N:
        try:
            number = self.read(value)
        except (ValueError, OverflowError):
            number = None
        if number is None or not self.min <= number <= self.max:  # what is not a number is never between
            bounds = f"from {self.min:{self.form}} to {self.max:{self.form}}"
            self.fail(f"{str(value)!r} is not a {self.name} {bounds}.", param, ctx)
        return number


class WholeNumber(_Bounded[int]):
    name, read, form = "whole number", int, "d"


class Number(_Bounded[float]):
    name, read, form = "number", float, "g"


PORT: Final = WholeNumber(0, 65535)

FILE: Final = click.Path(path_type=Path)
"""The type of a parameter that is a path. Whether it exists is for the command to say, in its own words."""


def limit(default: int, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How much is listed at most."""
    count = WholeNumber(1, MOST_LISTED)
    return click.option("--limit", metavar="N", type=count, default=default, show_default=True, help=help)


def agents_file(*, required: bool, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where agents come from: a file, or a module, perhaps with the name of one after a colon."""
    return click.argument(
        "file", metavar="FILE" if required else "[FILE]", required=required, shell_complete=complete_files, help=help
    )


store = click.option(
    "--store",
    metavar="ADDRESS",
    envvar=STORE_VARIABLE,
    show_envvar=True,
    default=DEFAULT_STORE,
    show_default=True,
    callback=_store,
    help="Where the journal is kept: a path, or an address.",
)


_listen_store_option = click.option(
    "--listen-store",
    metavar="ADDRESS",
    envvar=LISTEN_STORE_VARIABLE,
    show_envvar=True,
    callback=_listen_store,
    help="Where to listen, past a pooler in transaction mode.",
)


def listen_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """For a command that waits for what others write to the store. What is not typed belongs to a store that is not."""

    @wraps(command)
    def listening(*, listen_store: str | None, **given: Any) -> Any:
        typed = [click.get_current_context().get_parameter_source(name) for name in ("store", "listen_store")]
        is_of_another = typed[0] is ParameterSource.COMMANDLINE and typed[1] is not ParameterSource.COMMANDLINE
        return command(listen_store=None if is_of_another else listen_store, **given)

    return _listen_store_option(listening)


drivers = click.option(
    "--drivers",
    metavar="N",
    type=WholeNumber(1, MOST_DRIVERS),
    default=1,
    show_default=True,
    help="How many processes drive runs.",
)

token_file = click.option(
    "--token-file", metavar="FILE", type=FILE, help=f"Where the server's own token is, if not in {TOKEN_VARIABLE}."
)


_TEMPORAL: Final = (
    ("--temporal", "HOST:PORT", "Where Temporal is; 127.0.0.1:7233 if left out.", "address"),
    ("--namespace", "NAME", "The namespace there; default if left out.", "namespace"),
    (
        "--task-queue",
        "NAME",
        "The task queue there, of workers with the same agents; or checkrein.",
        "task_queue",
    ),
    ("--tls-ca", "FILE", "Certificates by which Temporal's is checked.", "tls_ca"),
    ("--tls-cert", "FILE", "The certificate that is shown to Temporal.", "tls_cert"),
    ("--tls-key", "FILE", "The key of that certificate.", "tls_key"),
)
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:/]+):[0-9]{1,5}")


def temporal(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--engine`, and what is said about Temporal, as one `temporal`: None where runs are found by their leases."""

    @wraps(command)
    def placing(*, engine: str, **given: Any) -> Any:
        from checkrein.engines.temporal import TemporalOptions

        said = {name: given.pop(f"temporal_{name}") for *_, name in _TEMPORAL}
        said = {name: value for name, value in said.items() if value is not None}
        if engine != "temporal":
            if said:
                option = next(option for option, *_, name in _TEMPORAL if name in said)
                raise click.UsageError(f"{option} is about --engine temporal.")
            return command(temporal=None, **given)
        if not _ADDRESS.fullmatch(said.get("address", "host:1")):
            raise click.UsageError(f"--temporal {said['address']} is no HOST:PORT, such as 127.0.0.1:7233.")
        if ("tls_cert" in said) != ("tls_key" in said):
            raise click.UsageError("--tls-cert and --tls-key go together.")
        return command(temporal=TemporalOptions(**said), **given)

    made: Callable[..., Any] = placing
    for option, metavar, help, name in reversed(_TEMPORAL):
        kind = click.Path(exists=True, dir_okay=False, resolve_path=True) if metavar == "FILE" else str
        made = click.option(option, f"temporal_{name}", metavar=metavar, type=kind, help=help)(made)
    return click.option(
        "--engine",
        metavar="ENGINE",
        type=click.Choice(ENGINES),
        default="leases",
        show_default=True,
        help=f"What decides which worker drives a run: {' or '.join(ENGINES)}.",
    )(made)


class Place(NamedTuple):
    """Where the runs are that a command is about."""

    store: str
    server: str | None = None
    """The address of a server; then the store is its own."""
    token: str | None = None
    listen_store: str | None = None
    """The same database as the store, reached past a pooler."""


_server_option = click.option(
    "--server",
    metavar="URL",
    envvar=SERVER_VARIABLE,
    show_envvar=True,
    callback=_server,
    help="Ask a server, instead of the store.",
)
_token_option = click.option(
    "--token", metavar="TOKEN", envvar=TOKEN_VARIABLE, show_envvar=True, help="What lets you in there."
)


def place(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say where the runs are, as one `place`."""

    @wraps(command)
    def placed(*, store: str, listen_store: str | None, server: str | None, token: str | None, **given: Any) -> Any:
        return command(place=_place(store, server, token)._replace(listen_store=listen_store), **given)

    return store(listen_store(server(placed)))


def server(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name a server and let you in there."""
    return _server_option(_token_option(command))


def _place(store: str, server: str | None, token: str | None) -> Place:
    context = click.get_current_context()
    typed = [name for name in ("store", "server") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if typed == ["store", "server"]:
        raise click.UsageError("Say either --store or --server: a server has a store of its own.")
    return Place(store, None if typed == ["store"] else server, token)


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for programs.")
plain = click.option("--plain", is_flag=True, help="Plain lines, also in a terminal.")
by = click.option("--by", metavar="NAME", default="", callback=_who, help="Who asks. Your login name if left out.")
log_level = click.option(
    "--log-level",
    metavar="LEVEL",
    type=click.Choice([*logs.LEVELS], case_sensitive=False),
    envvar=logs.LEVEL_VARIABLE,
    show_envvar=True,
    default=logs.DEFAULT_LEVEL,
    show_default=True,
    expose_value=False,
    callback=_log_level,
    help=f"What is logged to standard error: {', '.join(logs.LEVELS)}.",
)
log_format = click.option(
    "--log-format",
    metavar="FORMAT",
    type=click.Choice(logs.FORMATS, case_sensitive=False),
    envvar=logs.FORMAT_VARIABLE,
    show_envvar=True,
    default=logs.DEFAULT_FORMAT,
    show_default=True,
    expose_value=False,
    callback=_log_format,
    help="How: text, or json, an object a line.",
)
RUN_HELP: Final = "A run: its id, the beginning of it, or `last`; the unfinished one if left out."
CALL_HELP: Final = "A call: its id, or its name; the only one that waits if left out."
thread = click.option("--thread", metavar="NAME", help="The conversation this run belongs to.")
if_busy = click.option(
    "--if-busy",
    metavar="WHAT",
    type=click.Choice(get_args(IfBusy)),
    default="queue",
    show_default=True,
    help="When the thread has a live run: queue, redirect or refuse.",
)
run = click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_runs, help=RUN_HELP)
agent = click.option(
    "--agent", metavar="NAME", shell_complete=complete_agents, help="Which agent, if there are several."
)
