"""What the author of a tool says about it."""

from __future__ import annotations

import pytest

from checkrein import Agent, tool
from checkrein.agents.tool import Tool
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
    assert draft.what(b'{"to": "alice@example.com", "body": "Hello"}') == "the draft to alice@example.com"
    assert build(draft).tools["draft"].changes == "the draft to {to}"


def test_an_argument_is_kept_to_one_short_line() -> None:
    said = draft.what(b'{"to": "a\\nb   c"}')
    long = draft.what(b'{"to": "' + b"x" * 500 + b'"}')

    assert said == "the draft to a b c"
    assert len(long) < 80


def test_an_argument_cannot_reach_into_anything() -> None:
    assert draft.what(b'{"to": "{body.__class__}"}') == "the draft to {body.__class__}"


def test_a_tool_without_such_words_is_called_by_its_name() -> None:
    assert Tool(draft.function).what(b"{}") == "draft"
    assert draft.what(b"{}") == "draft", "an argument that is missing is no reason to fail"


@pytest.mark.parametrize("words", ["the draft to {nobody}", "the draft to {to.upper}", "the draft to {", "{}"])
def test_words_that_name_no_argument_are_refused_when_the_agent_is_built(words: str) -> None:
    with pytest.raises(MisuseError, match="changes="):
        build(Tool(draft.function, undo=discard, changes=words))
