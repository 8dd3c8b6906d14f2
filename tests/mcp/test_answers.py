"""What a server answers, as one JSON value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkrein.calls.mcp import progress_line
from checkrein.mcp.session import value_of


def text(words: str) -> Any:
    return SimpleNamespace(type="text", text=words)


@pytest.mark.parametrize(
    ("content", "structured", "value"),
    [
        ([], None, ""),
        ([text("a"), text("b")], None, "a\nb"),
        ([text("7")], {"result": 7}, 7),
        ([text("seven")], {"result": "seven"}, "seven"),
        ([text("a"), text("b")], {"result": ["a", "b"]}, ["a", "b"]),
        ([text('{\n  "a": 1\n}')], {"a": 1}, {"a": 1}),
        ([], {"a": 1}, {"a": 1}),
        ([text("One row.")], {"rows": [1]}, {"text": "One row.", "structured": {"rows": [1]}}),
        ([text("x")], {"result": None}, {"text": "x", "structured": {"result": None}}),
    ],
)
def test_text_and_structure_that_say_the_same_are_said_once(content: list[Any], structured: Any, value: Any) -> None:
    assert value_of(content, structured) == value


def test_what_is_no_text_is_named_with_its_type_and_size() -> None:
    picture = SimpleNamespace(type="image", mime_type="image/png", data="MTIzNDU2Nw==")
    sound = SimpleNamespace(type="audio", mime_type="audio/wav", data="MTIz")
    link = SimpleNamespace(type="resource_link", name="log", uri="file:///log", mime_type=None, size=12)
    page = SimpleNamespace(type="resource", resource=SimpleNamespace(uri="wiki://1", mime_type="text/html", text="é"))
    blob = SimpleNamespace(type="resource", resource=SimpleNamespace(uri="wiki://2", mime_type=None, blob="MTIz"))
    unheard_of = SimpleNamespace(type="hologram")

    assert value_of([picture, sound, link, page, blob, unheard_of], None).splitlines() == [
        "[image image/png, 7 bytes, not shown]",
        "[audio audio/wav, 3 bytes, not shown]",
        "[resource log at file:///log, 12 bytes]",
        "[resource text/html at wiki://1, 2 bytes, not shown]",
        "[resource at wiki://2, 3 bytes, not shown]",
        "[hologram, not shown]",
    ]


@pytest.mark.parametrize(
    ("done", "total", "message", "line"),
    [
        (3.0, 10.0, "reading", "3 of 10: reading\n"),
        (0.5, None, None, "0.5\n"),
        (1.0, 2.0, "two\nlines", "1 of 2: two lines\n"),
        (1.0, None, "x" * 1000, f"1: {'x' * 300}\n"),
    ],
)
def test_progress_is_one_line(done: float, total: float | None, message: str | None, line: str) -> None:
    assert progress_line(done, total, message) == line
