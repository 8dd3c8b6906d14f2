"""Events of the Anthropic wire as deltas, also the rare ones and those of servers that only resemble it."""

from __future__ import annotations

import msgspec
import pytest

from checkrein.core.conditions import Usage
from checkrein.models import (
    Collector,
    Finish,
    Finished,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageDelta,
    User,
)
from checkrein.models.anthropic.model import AnthropicReader
from checkrein.models.anthropic.thoughts import SEALED, Thought, packed
from checkrein.models.failures import ErrorInStream

REQUEST = Request("", (User("Go."),))


def read(*events):
    reader = AnthropicReader()
    return [delta for event in events for delta in reader.read(msgspec.json.encode(event))]


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, type, **piece):
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **piece}}


def stop(reason, **usage):
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


def begun(**usage):
    return {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": usage}}


THOUGHT = [
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Hm"),
    delta(0, "thinking_delta", thinking="."),
    delta(0, "signature_delta", signature="c2ln"),
    {"type": "content_block_stop", "index": 0},
]


def test_text_is_told_as_it_comes():
    assert read(start(0, type="text", text=""), delta(0, "text_delta", text="Hi"), delta(0, "text_delta", text="")) == [
        TextDelta("Hi")
    ]


def test_thinking_is_told_as_it_comes_and_then_signed():
    assert read(*THOUGHT) == [
        ThinkingDelta("Hm"),
        ThinkingDelta("."),
        ThinkingDelta("", packed([Thought(0, 0, 3, "c2ln")])),
    ]


def test_every_signature_says_where_each_thought_stood():
    deltas = read(
        *THOUGHT,
        start(1, type="text", text="So."),
        start(2, type="redacted_thinking", data="c2VhbGVk"),
        start(3, type="tool_use", id="a", name="search", input={}),
        start(4, type="thinking", thinking="", signature=""),
        delta(4, "signature_delta", signature="aGlkZGVu"),
        start(5, type="thinking", thinking="", signature=""),
        delta(5, "thinking_delta", thinking="And n"),
    )

    signatures = [delta.signature for delta in deltas if isinstance(delta, ThinkingDelta) and delta.signature]
    assert signatures[-1] == packed(
        [Thought(0, 0, 3, "c2ln"), Thought(3, 0, SEALED, "c2VhbGVk"), Thought(3, 1, 0, "aGlkZGVu")]
    ), "the last one was not signed yet"


def test_a_tool_call_comes_in_pieces_and_is_numbered_among_the_calls():
    deltas = read(
        start(0, type="text", text="So."),
        start(1, type="tool_use", id="a", name="search", input={}),
        delta(1, "input_json_delta", partial_json=""),
        delta(1, "input_json_delta", partial_json='{"q":'),
        start(2, type="tool_use", id="b", name="now", input={}),
        delta(1, "input_json_delta", partial_json=" 1}"),
    )

    assert deltas[1:] == [
        ToolCallDelta(0, "a", "search"),
        ToolCallDelta(0, arguments='{"q":'),
        ToolCallDelta(1, "b", "now"),
        ToolCallDelta(0, arguments=" 1}"),
    ]


def test_arguments_that_come_at_once_are_taken_too():
    assert read(start(0, type="tool_use", id="a", name="search", input={"q": 1})) == [
        ToolCallDelta(0, "a", "search", '{"q":1}')
    ]


def test_tools_of_the_provider_itself_are_not_ours_to_perform():
    assert (
        read(
            start(0, type="server_tool_use", id="s", name="web_search", input={}),
            delta(0, "input_json_delta", partial_json='{"query": "x"}'),
            start(1, type="web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
        )
        == []
    )


def test_usage_counts_what_was_read_from_and_written_to_a_cache_as_input():
    deltas = read(
        begun(input_tokens=10, cache_creation_input_tokens=20, cache_read_input_tokens=300, output_tokens=1),
        stop("end_turn", output_tokens=42),
    )

    assert deltas == [
        UsageDelta(
            Usage(input_tokens=330, output_tokens=1, cost_usd=None, cached_tokens=300, cache_written_tokens=20),
            final=False,
        ),
        UsageDelta(
            Usage(input_tokens=330, output_tokens=42, cost_usd=None, cached_tokens=300, cache_written_tokens=20),
            final=True,
        ),
        Finished(Finish.STOP),
    ]


@pytest.mark.parametrize("usage", [{}, {"input_tokens": 0, "output_tokens": 0}, {"output_tokens": 3}])
def test_usage_that_is_not_said_is_estimated(usage):
    collector = Collector(REQUEST)
    for one in read(begun(**usage), start(0, type="text", text="Hello there"), stop("end_turn", **usage)):
        collector.add(one)

    used = collector.usage()
    assert used.estimated, "no request is free of input"
    assert min(used.input_tokens, used.output_tokens) > 0


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("tool_use", Finish.TOOL_CALLS),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("pause_turn", Finish.LENGTH),
        ("refusal", Finish.FILTERED),
        ("a_word_of_next_year", Finish.STOP),
    ],
)
def test_the_reason_of_the_end_is_told(reason, finish):
    assert read(stop(reason, output_tokens=0)) == [Finished(finish)]


def test_an_end_without_a_reason_is_an_end():
    assert read(start(0, type="text", text="Hi"), {"type": "message_stop"}) == [TextDelta("Hi"), Finished(Finish.STOP)]


def test_nothing_is_told_after_the_end():
    events = [stop("end_turn"), delta(0, "text_delta", text="late"), stop("max_tokens"), {"type": "message_stop"}]

    assert read(*events) == [Finished(Finish.STOP)]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "ping"},
        {"type": "an_event_of_next_year", "index": 3},
        start(0, type="a_block_of_next_year", text="?"),
        delta(0, "citations_delta", citation={"type": "char_location"}),
        {"type": "content_block_delta", "index": 0},
        {"type": "content_block_start", "index": 0},
        {"type": "message_start"},
    ],
)
def test_what_is_not_known_is_passed_over(event):
    assert read(event) == []


def test_an_error_is_raised_with_all_it_says():
    with pytest.raises(ErrorInStream) as caught:
        read({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    assert b"overloaded_error" in caught.value.body


@pytest.mark.parametrize("event", [b"", b"{", b"[]", b'{"index": 0}', b'{"type": "content_block_delta", "delta": 1}'])
def test_what_is_no_event_is_an_error(event):
    with pytest.raises(msgspec.DecodeError):
        AnthropicReader().read(event)


def test_what_has_come_so_far_is_known_at_any_moment():
    reader = AnthropicReader()
    for event in (*THOUGHT, start(1, type="text", text="So."), start(2, type="tool_use", id="a", name="b", input={})):
        reader.read(msgspec.json.encode(event))

    message = reader.partial(REQUEST).message

    assert (message.thinking, message.text, message.calls, message.interrupted) == ("Hm.", "So.", (), True)
