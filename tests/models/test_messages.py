"""Messages survive JSON unchanged, and a history has a hash that tells it from every other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein import models
from checkrein.core.events import Json
from tests.models.strategies import whole_histories

CALL = models.ToolCall("c1", "send", Json(b'{"to": "x"}'))


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (models.User("Hi"), b'{"type":"user","text":"Hi"}'),
        (models.Note("Undone."), b'{"type":"note","text":"Undone."}'),
        (models.Assistant("Hi"), b'{"type":"assistant","text":"Hi"}'),
        (
            models.Assistant("", "hm", (CALL,), interrupted=True, signature="s"),
            b'{"type":"assistant","text":"","thinking":"hm","calls":[{"id":"c1","name":"send",'
            b'"arguments":{"to": "x"}}],"interrupted":true,"signature":"s"}',
        ),
        (
            models.ToolResult("c1", "send", "no", is_error=True),
            b'{"type":"tool_result","call":"c1","name":"send","content":"no","is_error":true}',
        ),
    ],
)
def test_a_message_has_the_same_bytes_for_ever(message: models.Message, body: bytes):
    assert msgspec.json.encode(message) == body
    assert msgspec.json.decode(body, type=models.Message) == message


@pytest.mark.parametrize(
    "request_",
    [
        models.Request("Be brief.", (models.User("Hi"),)),
        models.Request(
            "",
            (models.User("Hi"), models.Assistant("", calls=(CALL,)), models.ToolResult("c1", "send", "sent")),
            tools=(models.ToolSpec("send", "Sends.", models.as_json({"type": "object"})),),
            output_schema=models.as_json({"type": "string"}),
            settings=models.Settings(
                max_tokens=9, temperature=0.5, tool_choice="none", extra=models.as_json({"seed": 1})
            ),
        ),
    ],
)
def test_a_request_survives_a_round_trip(request_: models.Request):
    assert msgspec.json.decode(msgspec.json.encode(request_), type=models.Request) == request_


def test_a_message_cannot_be_changed():
    with pytest.raises((AttributeError, FrozenInstanceError)):
        models.User("Hi").text = "Bye"  # type: ignore[misc]


@given(whole_histories(), st.data())
def test_in_how_many_pieces_a_history_is_hashed_makes_no_difference(history, data):
    cut = data.draw(st.integers(0, len(history)))

    in_two = models.hash_after(models.hash_after(models.NO_HISTORY, history[:cut]), history[cut:])

    assert in_two == models.hash_after(models.NO_HISTORY, history)


@given(whole_histories())
def test_a_history_read_back_from_json_has_the_same_hash(history):
    body = msgspec.json.encode(history)

    read_back = msgspec.json.decode(body, type=tuple[models.Message, ...])

    assert models.hash_after(models.NO_HISTORY, read_back) == models.hash_after(models.NO_HISTORY, history)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([models.User("a"), models.User("b")], [models.User("b"), models.User("a")]),
        ([models.User("a"), models.User("b")], [models.User("ab")]),
        ([models.User("a")], [models.Note("a")]),
        ([models.Assistant("a")], [models.Assistant("a", interrupted=True)]),
        ([], [models.User("")]),
    ],
)
def test_other_histories_have_other_hashes(one: list[models.Message], other: list[models.Message]):
    assert models.hash_after(models.NO_HISTORY, one) != models.hash_after(models.NO_HISTORY, other)
