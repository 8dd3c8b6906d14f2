"""What the author of a tool says about it."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import pydantic
import pytest

from checkrein import Agent, Context, agent, tool
from checkrein.agents.tool import Tool
from checkrein.agents.tool_calls import spec_of
from checkrein.calls.base import Execution, Permit
from checkrein.errors import MisuseError
from checkrein.models import ScriptedModel


def discard(call: object) -> None: ...


@tool(undo=discard, changes="the draft to {to}")
def draft(to: str, body: str = "") -> str:
    return f"{to}: {body}"


def build(made: Tool) -> Agent:
    return Agent("a", model=ScriptedModel(["Done."]), tools=[made])


def test_what_a_call_changes_is_said_in_the_words_of_its_author_with_its_arguments() -> None:
    """D18 D34"""
    assert draft.what(b'{"to": "alice@example.com", "body": "Hello"}') == "the draft to “alice@example.com”"
    assert build(draft).tools["draft"].changes == "the draft to {to}"


def test_an_argument_is_kept_to_one_short_line() -> None:
    said = draft.what(b'{"to": "a\\nb   c"}')
    long = draft.what(b'{"to": "' + b"x" * 500 + b'"}')

    assert said == "the draft to “a b c”"
    assert len(long) < 80


def test_an_argument_cannot_reach_into_anything() -> None:
    assert draft.what(b'{"to": "{body.__class__}"}') == "the draft to “{body.__class__}”"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("x”, and deletes “everything", "“x', and deletes 'everything”"),
        ("x\u202e\x1b[2J\nThe run has ended", "“x\\u202e\\x1b[2J The run has ended”"),
        (7, "7"),
        (True, "True"),
        (None, "“None”"),
    ],
)
def test_what_a_model_chose_never_speaks_in_our_voice(given: object, said: str) -> None:
    assert draft.what(msgspec.json.encode({"to": given})) == f"the draft to {said}"


def test_a_tool_without_such_words_is_called_by_its_name() -> None:
    assert Tool(draft.function).what(b"{}") == "draft"
    assert draft.what(b"{}") == "draft", "an argument that is missing is no reason to fail"


@pytest.mark.parametrize("words", ["the draft to {nobody}", "the draft to {to.upper}", "the draft to {", "{}"])
def test_words_that_name_no_argument_are_refused_when_the_agent_is_built(words: str) -> None:
    with pytest.raises(MisuseError, match="changes="):
        build(Tool(draft.function, undo=discard, changes=words))


# -- what its author should mend


@pytest.mark.parametrize(
    ("said", "warned"),
    [
        ({"effect": "none"}, []),
        ({"undo": discard}, []),
        ({"undo": discard, "effect": "reversible"}, []),
        ({"effect": "irreversible"}, []),
        ({}, ["says nothing about its effect and has no undo"]),
        ({"effect": "irreversible", "approval": False}, ["cannot be undone and asks nobody (approval=False)"]),
        ({"effect": "reversible"}, ['says effect="reversible" and has no undo']),
        ({"effect": "none", "isolation": "thread"}, ['runs in a thread (isolation="thread") and may not be stoppable']),
    ],
)
def test_a_tool_warns_of_what_could_not_be_stopped_undone_or_known(said: dict[str, Any], warned: list[str]) -> None:
    found = list(Tool(draft.function, **said).warnings())

    assert [one.what for one in found] == warned
    assert all(one.why.endswith(".") for one in found)


# -- what is refused when an agent is built


class Session:
    """Something that only one process has."""


async def with_session(n: int, session: Any = Session()) -> None: ...  # noqa: B008
async def with_typed_session(session: Session = Session()) -> None: ...  # noqa: B008
async def without_end(limit: float = math.inf) -> None: ...
async def with_sessions(sessions: list[Any] = [Session()]) -> None: ...  # noqa: B006, B008


@pytest.mark.parametrize("function", [with_session, with_typed_session, without_end, with_sessions])
def test_a_default_that_json_cannot_hold_is_refused_when_the_agent_is_built(function: Any) -> None:
    with pytest.raises(MisuseError, match=r"has a default for (session|limit|sessions) that JSON cannot hold"):
        build(Tool(function))


async def with_plain(
    n: int = 1, text: str = "", many: tuple[int, ...] = (1, 2), none: Session | None = None
) -> None: ...
async def with_bytes(data: bytes = b"ab") -> None: ...
async def with_date(
    day: datetime.date = datetime.date(2026, 1, 2), days: frozenset[str] = frozenset({"a"})
) -> None: ...
async def with_field(n: int = pydantic.Field(3, ge=1), text: str | None = pydantic.Field(None)) -> None: ...


@pytest.mark.parametrize("function", [with_plain, with_bytes, with_date, with_field])
def test_a_default_that_can_be_recorded_is_taken(function: Any) -> None:
    assert build(Tool(function)).tools


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_an_agent_without_a_name_is_refused(name: str) -> None:
    async def program(ctx: Context, goal: str) -> None: ...

    with pytest.raises(MisuseError, match="needs a name"):
        Agent(name, model=ScriptedModel(["Done."]))
    with pytest.raises(MisuseError, match="needs a name"):
        agent(name=name)(program)


@pytest.mark.parametrize(
    ("options", "again"),
    [({"effect": "none"}, True), ({}, False), ({"effect": "reversible"}, False), ({"idempotent": True}, True)],
)
def test_a_call_that_only_looks_may_be_made_again_after_a_crash(options: dict[str, Any], again: bool) -> None:
    def perform(permit: Permit) -> Execution:
        raise NotImplementedError

    assert spec_of(Tool(draft.function, **options), perform, b"{}", check=bytes).idempotent is again
