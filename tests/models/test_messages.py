"""Messages survive JSON unchanged, and a history has a hash that tells it from every other."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.core.events import Json
from checkrein.models import (
    NO_HISTORY,
    Assistant,
    Message,
    Note,
    Request,
    Settings,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
    as_json,
    hash_after,
)
from tests.models.strategies import whole_histories

CALL = ToolCall("c1", "send", Json(b'{"to": "x"}'))


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (User("Hi"), b'{"type":"user","text":"Hi"}'),
        (Note("Undone."), b'{"type":"note","text":"Undone."}'),
        (Assistant("Hi"), b'{"type":"assistant","text":"Hi"}'),
        (
            Assistant("", "hm", (CALL,), interrupted=True, signature="s"),
            b'{"type":"assistant","text":"","thinking":"hm","calls":[{"id":"c1","name":"send",'
            b'"arguments":{"to": "x"}}],"interrupted":true,"signature":"s"}',
        ),
        (
            ToolResult("c1", "send", "no", is_error=True),
            b'{"type":"tool_result","call":"c1","name":"send","content":"no","is_error":true}',
        ),
    ],
)
def test_a_message_has_the_same_bytes_for_ever(message: Message, body: bytes):
    assert msgspec.json.encode(message) == body
    assert msgspec.json.decode(body, type=Message) == message


@pytest.mark.parametrize(
    "request_",
    [
        Request("Be brief.", (User("Hi"),)),
        Request(
            "",
            (User("Hi"), Assistant("", calls=(CALL,)), ToolResult("c1", "send", "sent")),
            tools=(ToolSpec("send", "Sends.", as_json({"type": "object"})),),
            output_schema=as_json({"type": "string"}),
            settings=Settings(max_tokens=9, temperature=0.5, tool_choice="none", extra=as_json({"seed": 1})),
        ),
    ],
)
def test_a_request_survives_a_round_trip(request_: Request):
    assert msgspec.json.decode(msgspec.json.encode(request_), type=Request) == request_


def test_a_message_cannot_be_changed():
    with pytest.raises((AttributeError, FrozenInstanceError)):
        User("Hi").text = "Bye"  # type: ignore[misc]


@given(whole_histories(), st.data())
def test_in_how_many_pieces_a_history_is_hashed_makes_no_difference(history, data):
    cut = data.draw(st.integers(0, len(history)))

    in_two = hash_after(hash_after(NO_HISTORY, history[:cut]), history[cut:])

    assert in_two == hash_after(NO_HISTORY, history)


@given(whole_histories())
def test_a_history_read_back_from_json_has_the_same_hash(history):
    body = msgspec.json.encode(history)

    read_back = msgspec.json.decode(body, type=tuple[Message, ...])

    assert hash_after(NO_HISTORY, read_back) == hash_after(NO_HISTORY, history)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([User("a"), User("b")], [User("b"), User("a")]),
        ([User("a"), User("b")], [User("ab")]),
        ([User("a")], [Note("a")]),
        ([Assistant("a")], [Assistant("a", interrupted=True)]),
        ([], [User("")]),
    ],
)
def test_other_histories_have_other_hashes(one: list[Message], other: list[Message]):
    assert hash_after(NO_HISTORY, one) != hash_after(NO_HISTORY, other)
