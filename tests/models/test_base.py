"""A reply is put together from deltas, whole or stopped anywhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.core.conditions import Usage
from checkrein.core.events import Json
from checkrein.errors import ModelUnavailable
from checkrein.models import (
    Assistant,
    Collector,
    Delta,
    Finish,
    Finished,
    Reply,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    UsageDelta,
    User,
    as_json,
    close,
    collect,
    estimate_tokens,
)

REQUEST = Request("Be brief.", (User("Which customers will churn?"),))
USED = UsageDelta(Usage(input_tokens=9, output_tokens=7))

WHOLE: list[Delta] = [
    ThinkingDelta("hm"),
    ThinkingDelta("", signature="sig"),
    TextDelta("The first "),
    TextDelta("three."),
    ToolCallDelta(0, id="c1", name="send"),
    ToolCallDelta(0, arguments='{"to":'),
    ToolCallDelta(0, arguments=' "x"}'),
    ToolCallDelta(1, id="c2", name="list"),
    ToolCallDelta(1, arguments="{}"),
    Finished(Finish.TOOL_CALLS),
    USED,
]


def collector(deltas: Iterable[Delta], request: Request | None = REQUEST) -> Collector:
    collected = Collector(request)
    for delta in deltas:
        collected.add(delta)
    return collected


async def stream(deltas: Iterable[Delta]) -> AsyncGenerator[Delta, None]:
    for delta in deltas:
        yield delta


# -- whole replies


@pytest.mark.anyio
async def test_a_stream_is_collected_to_its_message_usage_and_finish():
    reply = await collect(stream(WHOLE), REQUEST)

    assert reply == Reply(
        Assistant(
            "The first three.",
            "hm",
            (ToolCall("c1", "send", Json(b'{"to":"x"}')), ToolCall("c2", "list", Json(b"{}"))),
            signature="sig",
        ),
        Usage(input_tokens=9, output_tokens=7),
        Finish.TOOL_CALLS,
    )


@pytest.mark.anyio
async def test_a_stream_that_breaks_off_is_an_error_that_keeps_what_had_come():
    with pytest.raises(ModelUnavailable) as caught:
        await collect(stream([TextDelta("The first")]), REQUEST)

    assert caught.value.partial.message == Assistant("The first", interrupted=True)
    assert caught.value.may_retry


def test_the_finish_tells_whether_there_are_calls_whatever_the_provider_calls_it():
    asks: list[Delta] = [ToolCallDelta(0, id="c1", name="send", arguments="{}"), Finished(Finish.STOP)]
    speaks: list[Delta] = [TextDelta("Done."), Finished(Finish.TOOL_CALLS)]

    assert collector(asks).reply().finish is Finish.TOOL_CALLS
    assert collector(speaks).reply().finish is Finish.STOP


@pytest.mark.parametrize("written", ["", " ", "{}"])
def test_a_call_without_arguments_has_an_empty_object(written: str):
    reply = collector([ToolCallDelta(0, "c1", "now", written), Finished(Finish.TOOL_CALLS)]).reply()

    assert reply.message.calls == (ToolCall("c1", "now", Json(b"{}")),)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('{"a": 1,\n "b": 1.0, "c": 12345678901234567890123}', b'{"a":1,"b":1.0,"c":12345678901234567890123}'),
        ('{"a": oops', b'"{\\"a\\": oops"'),
        ("[1, 2]", b"[1,2]"),
        ("[" * 100_000, b'"' + b"[" * 100_000 + b'"'),
    ],
)
def test_arguments_are_one_line_of_json_whatever_the_model_wrote(written: str, kept: bytes):
    reply = collector([ToolCallDelta(0, "c1", "send", written), Finished(Finish.TOOL_CALLS)]).reply()

    assert reply.message.calls == (ToolCall("c1", "send", Json(kept)),)


def test_a_call_without_an_id_gets_one_and_keeps_it():
    collected = collector([ToolCallDelta(0, name="send"), ToolCallDelta(1, name="send"), Finished(Finish.STOP)])

    first, second = collected.reply().message.calls

    assert first.id != second.id
    assert collected.reply().message.calls == (first, second)


def test_a_call_cut_off_by_a_limit_is_dropped_and_the_whole_ones_before_it_stay():
    reply = collector([*WHOLE[:8], ToolCallDelta(1, arguments='{"a'), Finished(Finish.LENGTH)]).reply()

    assert [call.id for call in reply.message.calls] == ["c1"]
    assert reply.finish is Finish.LENGTH


# -- stopped replies


@given(st.integers(0, len(WHOLE)))
def test_a_reply_stopped_anywhere_keeps_its_text_and_no_half_call(cut):
    partial = collector(WHOLE[:cut]).partial()

    text = "".join(delta.text for delta in WHOLE[:cut] if isinstance(delta, TextDelta))
    whole_calls = {7: 1, 8: 1, 9: 2, 10: 2, 11: 2}.get(cut, 0)
    over = cut >= 10
    assert partial.message.text == text
    assert len(partial.message.calls) == whole_calls
    assert all(bytes(call.arguments) in (b'{"to":"x"}', b"{}") for call in partial.message.calls)
    assert partial.message.interrupted is not over
    assert (partial.finish is Finish.INTERRUPTED) is not over


@given(st.text(alphabet='{}[]":,a1 \\', max_size=30))
def test_half_a_call_is_never_taken_for_a_whole_one(piece):
    written = '{"to":"x","body":"' + piece.replace("\\", "").replace('"', "")

    partial = collector([ToolCallDelta(0, "c1", "send", written)]).partial()

    assert partial.message.calls == ()


def test_a_last_call_whose_arguments_may_still_come_is_dropped_but_one_that_was_followed_is_not():
    began = ToolCallDelta(0, "c1", "now")

    assert collector([began]).partial().message.calls == ()
    assert [call.id for call in collector([began, ToolCallDelta(1, "c2", "now")]).partial().message.calls] == ["c1"]


# -- usage


def test_what_the_provider_said_at_the_end_is_taken_as_it_is():
    assert collector(WHOLE).partial().usage == USED.usage


def test_usage_that_was_not_said_is_estimated_and_marked():
    usage = collector([TextDelta("abcd" * 10)]).partial().usage

    assert usage == Usage(input_tokens=estimate_tokens(REQUEST), output_tokens=10, cost_usd=None, estimated=True)


def test_input_that_was_said_early_is_kept_and_output_is_estimated():
    early = UsageDelta(Usage(input_tokens=900, output_tokens=1), final=False)

    usage = collector([early, TextDelta("abcd" * 10)]).partial().usage

    assert usage == Usage(input_tokens=900, output_tokens=10, estimated=True)


def test_a_later_word_on_usage_does_not_lose_an_earlier_one():
    early = UsageDelta(Usage(input_tokens=900, output_tokens=1), final=False)
    late = UsageDelta(Usage(output_tokens=55))

    assert collector([early, late]).usage() == Usage(input_tokens=900, output_tokens=55)


def test_half_a_call_is_dropped_but_what_it_cost_is_not():
    usage = collector([ToolCallDelta(0, "c1", "send", '{"body":"' + "x" * 400)]).partial().usage

    assert usage.output_tokens > 100


def test_an_estimate_counts_everything_a_model_has_to_read():
    small = estimate_tokens(REQUEST)
    spec = ToolSpec("send", "Sends." * 100, as_json({"type": "object"}))

    assert 5 < small < 20
    assert estimate_tokens(Request("", REQUEST.messages, tools=(spec,))) > 150
    assert estimate_tokens(Request("", (User("統計"),))) == 2


# -- closing


@pytest.mark.anyio
async def test_a_cancelled_reader_leaves_its_stream_closed():
    closed = anyio.Event()

    async def silent() -> AsyncGenerator[Delta, None]:
        try:
            yield TextDelta("The")
            await anyio.sleep_forever()
        finally:
            closed.set()

    with anyio.move_on_after(0.01) as scope:
        await collect(silent())

    assert scope.cancelled_caught
    assert closed.is_set()


@pytest.mark.anyio
async def test_a_reader_that_leaves_early_can_close_also_while_being_cancelled():
    steps: list[str] = []

    async def slow_to_close() -> AsyncGenerator[Delta, None]:
        try:
            while True:
                yield TextDelta("word ")
        finally:
            await anyio.sleep(0.005)
            steps.append("closed")

    source = slow_to_close()
    with anyio.CancelScope() as scope:
        await anext(source)
        scope.cancel()
        await close(source)
        steps.append("went on")

    assert steps == ["closed", "went on"]
