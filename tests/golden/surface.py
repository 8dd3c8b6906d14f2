"""What others depend on: public names, error codes, schemas, the verb table, the command line and HTTP, as text."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import pytest

import checkrein
from checkrein import Principal, Receipt, Role, Runtime, Settling, asgi
from checkrein.cli import main
from checkrein.control.view import RunView
from checkrein.core.effects import Effect
from checkrein.core.enums import Status, Verb
from checkrein.core.events import AFTER_THE_END, DECIDING, DECISIONS, EVENTS, UNOWNED
from checkrein.core.state import State
from checkrein.core.transitions import VERBS
from checkrein.errors import CheckreinError
from tests.golden.agents import clerk, gate
from tests.golden.compare import pretty
from tests.golden.normal import Names
from tests.golden.scenarios import noted
from tests.golden.stores import reopened
from tests.server.serving import Frame, serving

COMMANDS: Final = (
    "new", "demo", "run", "serve", "start", "ps", "watch", "stops", "doctor", "pause", "resume", "redirect", "cancel",
    "ask", "approve", "deny", "resolve", "abort", "retry-undo", "token", "token create", "token list", "token revoke",
    "token link", "completion",
)  # fmt: skip
"""A command that is not here is found in what `checkrein --help` says."""


# -- Python


def public_names() -> str:
    return "\n".join(checkrein.__all__) + "\n"


def error_codes() -> str:
    """Every error, below what it inherits from, with its code."""

    def lines(kind: type[CheckreinError], depth: int) -> Iterator[str]:
        yield f"{'  ' * depth}{kind.__name__}: {kind.code}"
        for below in sorted(kind.__subclasses__(), key=lambda one: one.__name__):
            if below.__module__.startswith("checkrein."):
                yield from lines(below, depth + 1)

    return "\n".join(lines(CheckreinError, 0)) + "\n"


def event_schemas() -> str:
    """Every kind of event: its schema, the order of its fields in the journal, and the sets that it is in."""
    sets = {"decision": DECISIONS, "deciding": DECIDING, "unowned": UNOWNED, "after_the_end": AFTER_THE_END}
    return pretty(
        {
            str(kind.__struct_config__.tag): {
                "schema": msgspec.json.schema(kind),
                "fields": kind.__struct_encode_fields__,
                "is": [name for name, some in sets.items() if kind in some],
            }
            for kind in EVENTS
        }
    )


def state_schema() -> str:
    """Snapshots of another shape are not read: a change here makes every one that was kept useless, which is safe."""
    return pretty(msgspec.json.schema(State))


def answer_schemas() -> str:
    return pretty({kind.__name__: msgspec.json.schema(kind) for kind in (Receipt, Settling, RunView, Effect)})


def verb_table() -> str:
    """What each verb does in each status."""
    lines = []
    for status in Status:
        for verb in Verb:
            move = VERBS.get((status, verb))
            if move is None:
                lines.append(f"{status.value:12} {verb.value:11} refused")
                continue
            said = {"settled": move.settled, "undriven": move.undriven, "same receipt": move.joins or None}
            more = "".join(f", {name} {'' if one is True else one}".rstrip() for name, one in said.items() if one)
            lines.append(f"{status.value:12} {verb.value:11} {move.to.value}{more}")
    return "\n".join(lines) + "\n"


# -- the command line


def help_of(command: str) -> str:
    """What `checkrein COMMAND --help` prints."""
    printed = io.StringIO()
    plain = patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"})
    with plain, redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert not ended.value.code
    return printed.getvalue()


def command_line() -> str:
    return "\n".join(
        f"$ checkrein {command} --help".replace("  ", " ") + f"\n{help_of(command)}" for command in ("", *COMMANDS)
    )


# -- HTTP


def _app(runtime: Runtime) -> Any:
    return asgi(runtime, authorize=lambda _: Principal(name="ann", role=Role.OPERATOR), hosts=["127.0.0.1"])


def openapi() -> str:
    return pretty(_app(Runtime("memory:")).openapi())


async def recorded_streams(folder: Path) -> str:
    """What the event stream and the live stream send of a run that is over, from a recorded store: to the byte."""
    async with reopened("completed", folder) as runtime, serving(_app(runtime)) as client:
        run = (await runtime.runs())[-1].id
        async with client.stream(f"/api/runs/{run}/events") as stream:
            events = await stream.rest()
        async with client.stream(f"/api/runs/{run}/events?after=10") as stream:
            rest = await stream.rest()
        async with client.stream(f"/api/runs/{run}/live") as stream:
            live = [_undated(frame) for frame in await stream.until("view")]
    return (
        "\n".join(
            ["-- events", *map(_line, events), "-- events after 10", *map(_line, rest), "-- live", *map(_line, live)]
        )
        + "\n"
    )


async def live_streams(folder: Path) -> str:
    """What the event stream sends of a run that speaks: the text in flight from its start, then what follows."""
    async with reopened("completed", folder) as runtime, serving(_app(runtime)) as client:
        run = await runtime.start(clerk, "tells")
        await noted("waiting tells")
        async with client.stream(f"/api/runs/{run.id}/events") as stream:
            found = await stream.until("call.chunk")
            gate("tells").touch()
            found += await stream.rest()
    names = Names()
    return "\n".join(_line(_masked(frame, names)) for frame in _joined(found)) + "\n"


def _line(frame: Frame) -> str:
    return f"event: {frame.kind} | id: {frame.id} | data: {frame.data.decode()}"


def _undated(frame: Frame) -> Frame:
    """A view, without the time at which it was looked at."""
    return frame._replace(data=msgspec.json.encode({**frame.json, "at": "TIME"}))


def _masked(frame: Frame, names: Names) -> Frame:
    return frame._replace(data=msgspec.json.encode(names.plain(frame.json)))


def _joined(frames: list[Frame]) -> Iterator[Frame]:
    """Text that came in several pieces as one: how it is cut depends on the moment."""
    texts: dict[str, Any] = {}
    for frame in frames:
        if frame.kind == "call.chunk":
            chunk = frame.json
            kept = texts.setdefault(chunk["call"], chunk)
            if kept is not chunk:
                assert chunk["offset"] == kept["offset"] + len(kept["text"]), "no character twice, none left out"
                kept["text"] += chunk["text"]
        else:
            yield from (Frame("call.chunk", msgspec.json.encode(chunk)) for chunk in texts.values())
            texts.clear()
            yield frame


TEXTS: Final[Mapping[str, Any]] = {
    "schemas/public_names.txt": public_names,
    "schemas/error_codes.txt": error_codes,
    "schemas/events.json": event_schemas,
    "schemas/state.json": state_schema,
    "schemas/answers.json": answer_schemas,
    "schemas/verbs.txt": verb_table,
    "cli/help.txt": command_line,
    "http/openapi.json": openapi,
}
STREAMS: Final[Mapping[str, Any]] = {
    "http/recorded_streams.txt": recorded_streams,
    "http/live_stream.txt": live_streams,
}
