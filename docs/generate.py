"""Writes the pages of the reference that are made from the code: events, receipts, HTTP, the tables of verbs and stops.

    python docs/generate.py            writes them
    python docs/generate.py --check    says which are out of date, and fails if any is

`make docs` and a test run it.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from checkrein.control.control import Settling
from checkrein.core import receipts
from checkrein.core.enums import TERMINAL, CallKind, OnPause, Status, Verb
from checkrein.core.events import AFTER_THE_END, DECISIONS, EVENTS, UNOWNED, Event, Need
from checkrein.core.transitions import STOPS, VERBS, Move, Stop, Stoppable

DOCS: Final = Path(__file__).parent
MADE: Final = "<!-- Made by `make docs` from the code. -->"


# -- structs


def fields_of(struct: type[msgspec.Struct], but: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """The name, the type and the docstring of each field, in the order of the class."""
    bases = [
        base for base in reversed(struct.__mro__) if issubclass(base, msgspec.Struct) and base is not msgspec.Struct
    ]
    told = {name: text for base in bases for name, text in _docstrings(base).items()}
    for field in msgspec.structs.fields(struct):
        if field.name not in but:
            yield field.encode_name, _type(struct, field.name), told.get(field.name, "")


def _docstrings(struct: type) -> dict[str, str]:
    """The string that stands below a field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(tree, ast.ClassDef)
    told = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            told[field.target.id] = " ".join(str(below.value.value).split())
    return told


def _type(struct: type, name: str) -> str:
    for base in struct.__mro__:
        if name in (written_down := inspect.get_annotations(base)):
            written = str(written_down[name])
            return written.replace("MaybeJson", "JSON | None").replace("Json", "JSON").replace("msgspec.Raw", "JSON")
    raise AssertionError(name)


def _table(struct: type[msgspec.Struct], but: tuple[str, ...] = ()) -> str:
    rows = [_row(*cells) for cells in fields_of(struct, but)]
    return "\n".join(["| field | type | |", "| --- | --- | --- |", *rows]) if rows else "No fields of its own."


def _row(name: str, kind: str, told: str) -> str:
    kind = kind.replace("|", "\\|")
    return f"| `{name}` | `{kind}` | {told} |"


def _doc(struct: type) -> str:
    """Its own docstring."""
    return inspect.cleandoc(struct.__dict__.get("__doc__") or "")


# -- the tables of the core


def status_page() -> str:
    parts = [
        "# The status of a run, and what each verb does to it",
        MADE,
        "From `checkrein.core.transitions`, which `decide` and `evolve` read.",
        "```mermaid\n" + "\n".join(_diagram()) + "\n```",
        """An arrow with a verb is what happens when the verb is accepted; *settled* is what follows when all that it
        asked for has happened. A verb that is missing in a status is refused and changes nothing.""",
        "\n".join(_verb_table()),
        """*same receipt*: nothing new is accepted, the answer is the receipt of the verb already in force. *taken*: the
        status stays as it is. Where no driver lives, a resumed run is queued. A person's pause of a run that was
        paused by a shutdown, or with its parent, takes the place of that pause: neither a restart nor the parent
        resumes it.""",
        "## What each verb does to the calls in flight",
        "\n".join(_stop_table()),
        """*stop*: it is ended now. *hold*: it is frozen where it is, and goes on after a resume. *finish*: it goes on
        to its end, and what the verb leads to waits for it. *spare*: it goes on, and nothing waits for it. An abort is
        about the one call it names, and is refused for an undo.""",
        """How each kind of call is really stopped is told in `checkrein.calls.base`. Every cell is seen from outside,
        by the log of a tool or the clock of a model, in `tests/promises/test_stop_table.py`.""",
    ]
    return _page(parts)


def _diagram() -> list[str]:
    lines = ["stateDiagram-v2", "    [*] --> queued", "    queued --> running: a driver starts"]
    for (status, verb), move in VERBS.items():
        if move.to is not status and verb is not Verb.HALT:
            lines.append(f"    {status.value} --> {move.to.value}: {verb.value}")
    settled = dict.fromkeys((move.to, move.settled) for move in VERBS.values() if move.settled is not None)
    lines += [f"    {to.value} --> {after.value}: settled" for to, after in settled]
    lines += ["    running --> completed: the program ends", "    running --> failed: the program raises"]
    lines += ["    note right of killed: halt leads here from every live status"]
    return [*lines, *(f"    {status.value} --> [*]" for status in Status if status in TERMINAL)]


def _verb_table() -> Iterator[str]:
    yield "| status | " + " | ".join(verb.value for verb in Verb) + " |"
    yield "| --- |" + " --- |" * len(Verb)
    for status in Status:
        yield f"| {status.value} | " + " | ".join(_cell(status, VERBS.get((status, verb))) for verb in Verb) + " |"


def _cell(status: Status, move: Move | None) -> str:
    if move is None:
        return "–"
    if move.joins:
        return "same receipt"
    if move.to is status and move.settled is None:
        return "taken"
    arrow = "" if move.settled is None else f" → {move.settled.value}"
    return f"{move.to.value}{arrow}"


CALLS: Final[Mapping[Stoppable, str]] = {
    (CallKind.MODEL, None): "model call, `ctx.stream`",
    (CallKind.TOOL, OnPause.FINISH): 'tool, `on_pause="finish"`',
    (CallKind.TOOL, OnPause.ABORT): 'tool, `on_pause="abort"`',
    (CallKind.TOOL, OnPause.HOLD): 'tool, `on_pause="hold"`',
    (CallKind.RUN, None): "sub-run",
    (CallKind.PROCESS, None): "program under `checkrein exec`",
    (CallKind.ASK, None): "side question",
    (CallKind.UNDO, None): "undo",
}


def _stop_table() -> Iterator[str]:
    yield "| call in flight | " + " | ".join(stop.value for stop in Stop) + " |"
    yield "| --- |" + " --- |" * len(Stop)
    for row in dict.fromkeys(row for row, _ in STOPS):
        yield f"| {CALLS[row]} | " + " | ".join(STOPS[row, stop].value for stop in Stop) + " |"


# -- pages


def events_page() -> str:
    parts = [
        "# Events",
        MADE,
        """The journal of a run is a list of these, and nothing else is true about it. `GET /api/runs/{run}/events`
        streams them as they happen, with the very bytes that are stored and hashed; `run.events()` gives them to a
        program.""",
        """Each has a `type`, an `id` made by whoever appended it, the time `at` in Unix seconds, and, in the journal
        and on the stream, a `seq`. A *fact* is taken whatever verb came before it; a *decision* only when its maker has
        seen everything that decides. Text that streams is no event: it comes as `call.chunk` in between, with `call`,
        `attempt`, `offset` and `text`, and without an id.""",
        "A field that has its default is left out. New fields and new types may be added: ignore what you do not know.",
    ]
    for event in EVENTS:
        parts += [f"## `{_tag(event)}`", _doc(event), _said_of(event), _table(event, but=("id", "at"))]
    parts += ["## Need", _doc(Need), _table(Need)]
    return _page(parts)


def _tag(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)


def _said_of(event: type[Event]) -> str:
    said = ["A decision." if event in DECISIONS else "A fact."]
    if event in UNOWNED:
        said.append("Anybody with the right to steer may append it, whoever drives the run.")
    if event in AFTER_THE_END:
        said.append("Also after the end of the run.")
    return " ".join(said)


def receipts_page() -> str:
    example = receipts.Receipt(
        verb=receipts.Verb.CANCEL,
        run="r-7f3a",
        status=receipts.Status.CANCELLED,
        seq=41,
        by="alice",
        reason="wrong direction",
        timing_ms=receipts.Timing(accepted=2.1, calls_stopped=9.4, settled=31.0),
        calls=(receipts.StoppedCall(id="c7", kind=receipts.CallKind.TOOL, name="score_churn", now="killed", ms=9.4),),
        effects=(
            receipts.ChangedEffect(id="c5", what="the draft to alice@example.com", now=receipts.EffectState.UNDONE),
        ),
        partial=receipts.Partial(chars=812, thread="q4-retention"),
    )
    parts = [
        "# Receipts",
        MADE,
        """What a verb answers once it has settled: what was stopped, what was undone, what is unknown or left, and how
        long it took. The same receipt is in the journal (`verb.settled`), in what a program gets from
        `await run.cancel()`, and in the answer over HTTP. A field that has its default is left out in the journal.""",
        "```json\n" + msgspec.json.format(msgspec.json.encode(example), indent=2).decode() + "\n```",
        """A verb that is accepted and in force, but not settled within the time its caller was willing to wait, answers
        with [what it still waits for](#settling) instead; it settles all the same.""",
    ]
    for struct in (
        receipts.Receipt,
        receipts.Timing,
        receipts.StoppedCall,
        receipts.ChangedEffect,
        receipts.Partial,
        Settling,
    ):
        parts += [f"## {struct.__name__}", _doc(struct), _table(struct)]
    return _page(parts)


_HTTP: Final = (
    """`checkrein serve` answers on `http://127.0.0.1:8420` unless told otherwise; [`checkrein.asgi`](../howto/mount.md)
    puts the same under a path of your own application. A program sends `Authorization: Bearer ckr_…` (see
    [roles and tokens](../howto/tokens.md)); the page has a session.""",
    """Bodies are JSON, sent as `Content-Type: application/json`. An error is always `{"code", "message", …}`: the
    `code` is one of [these](errors.md) and stays, the sentence is for people. Another owner's run is a 404 like
    one that does not exist. `GET /api/openapi.json` is the same in a form for programs.""",
    """A verb answers 200 with its [receipt](receipts.md) once it has settled, or 202 with what it still waits for after
    `wait` seconds. Repeat a verb whose answer was lost with the same `request_id`: it is not done twice, and its
    answer comes back. An id that was used for something else is a 409; pause, cancel and abort are taken all the same,
    under `<request_id>.<verb>`. `expected_seq` refuses a click on what is no longer so; pause and cancel ignore it. A
    server that is shutting down answers 202 to those who wait.""",
    """A stream goes on from `Last-Event-ID` or `?after=`: every event above it, once, in order. A number above the last
    event is a 422. Whoever reads too slowly is let go, and comes back with the last id it has seen.""",
)


def http_page() -> str:
    described = _description()
    parts = ["# HTTP", MADE, *_HTTP]
    heading = ""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            if tag != heading:
                heading = tag
                parts.append(f"## {tag.capitalize()}")
            parts += [f"### `{method.upper()} {path}`", _summary(operation), *_asked(operation, described)]
            parts.append(_answers(operation["responses"]))
    return _page(parts)


def _description() -> dict[str, Any]:
    from checkrein.server.app import create_app
    from checkrein.server.auth.guard import Guard

    class Nobody:
        journal = control = None
        now = staticmethod(lambda: 0.0)
        agents = staticmethod(dict)

    nobody: Any = Nobody()
    return create_app(nobody, Guard(authorize=lambda _: None)).openapi()


def _summary(operation: Mapping[str, Any]) -> str:
    summary, described = operation.get("summary", ""), operation.get("description", "")
    return f"{summary}.\n\n{described}".strip() if described else f"{summary}."


def _asked(operation: Mapping[str, Any], described: Mapping[str, Any]) -> Iterator[str]:
    queried = [one for one in operation.get("parameters", ()) if one["in"] in ("query", "header")]
    if queried:
        yield "Asked with: " + ", ".join(f"`{one['name']}`" for one in queried) + "."
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    reference = content.get("schema", {}).get("$ref", "")
    if reference:
        schema = described["components"]["schemas"][reference.rpartition("/")[2]]
        required = set(schema.get("required", ()))
        given = [f"`{name}`" + ("" if name in required else "?") for name in schema.get("properties", {})]
        yield "Body: " + (", ".join(given) if given else "none") + "."
    if content.get("example"):
        yield f"For example `{msgspec.json.encode(content['example']).decode()}`."


def _answers(responses: Mapping[str, Any]) -> str:
    return "\n".join(f"- **{status}** {_named(answer)}" for status, answer in sorted(responses.items()))


def _named(answer: Mapping[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        if name and name not in ("ErrorBody", "HTTPValidationError"):
            return f"`{name}`: {answer['description']}"
    return str(answer["description"])


def _page(parts: list[str]) -> str:
    return "\n\n".join(_wrapped(part) for part in parts if part) + "\n"


def _wrapped(part: str) -> str:
    """Prose, on lines that a person can read in an editor too; what has a form of its own keeps it."""
    if part.startswith(("|", "#", "- ", "```", "<")):
        return part
    return "\n\n".join(textwrap.fill(" ".join(one.split()), 118) for one in part.split("\n\n"))


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "design/status.md": status_page,
    "reference/events.md": events_page,
    "reference/receipts.md": receipts_page,
    "reference/http.md": http_page,
}


def main() -> int:
    late = [name for name, made in PAGES.items() if not _is_current(name, made())]
    if "--check" in sys.argv[1:]:
        for name in late:
            print(f"docs/{name} is out of date: run `make docs`.")
        return len(late) > 0
    for name in late:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"docs/{name}")
    return 0


def _is_current(name: str, page: str) -> bool:
    path = DOCS / name
    return path.exists() and path.read_text(encoding="utf-8") == page


if __name__ == "__main__":
    sys.exit(main())
