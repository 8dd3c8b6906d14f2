"""How an answer is played in time, and that the log says what really happened, by the provider's own clock."""

from __future__ import annotations

import asyncio
import socket
import time
from itertools import pairwise

import pytest

from checkrein.testing.provider import Fault, Provider, Reply
from tests.support.patience import within
from tests.testing.raw import ASK, line, request

pytestmark = pytest.mark.anyio

SOON = within(2.5)
"""Seconds within which something that takes milliseconds has happened."""


async def test_tokens_leave_at_the_pace_that_is_asked_for():
    async with Provider(Reply(["tok "] * 20, tokens_per_second=40)) as provider, line(provider.port) as client:
        client.send(request())
        await provider.until(lambda log: log and log[0].how == "completed")

    (played,) = provider.log
    assert played.tokens_sent == len(played.token_times) == 20
    took = played.token_times[-1] - played.at  # the first may be late, and is caught up with
    assert 19 / 40 < took < 19 / 40 + SOON
    assert played.token_times == sorted(played.token_times)


async def test_a_pace_that_was_held_up_is_caught_up_with():
    """A client that reads late, or a loop that was busy, does not make the whole answer later than it was to be."""
    async with Provider(Reply(["tok "] * 100, tokens_per_second=100)) as provider, line(provider.port) as client:
        client.send(request())
        await client.see(b"tok")
        time.sleep(0.3)  # noqa: ASYNC251 - the loop shall be busy
        await provider.until(lambda log: log[0].how == "completed")

    times = provider.log[0].token_times
    assert times[-1] - times[0] < 1.0 + 0.5 * SOON
    assert max(later - earlier for earlier, later in pairwise(times)) > 0.2


async def test_the_first_byte_waits_as_long_as_it_is_told():
    async with Provider(Reply("Hello.", first_byte_after=0.2)) as provider, line(provider.port) as client:
        client.send(request())
        await client.see(b"200 OK")
        await provider.until(lambda log: log[0].how)

    (played,) = provider.log
    assert played.first_byte_at is not None
    assert played.first_byte_at - played.at >= 0.2
    assert played.last_token_at is not None
    assert played.ended_at is not None
    assert played.at < played.first_byte_at <= played.last_token_at <= played.ended_at


async def test_an_answer_as_a_whole_takes_as_long_as_its_tokens_would():
    reply = Reply(["tok "] * 20, tokens_per_second=100)
    async with Provider(reply) as provider, line(provider.port) as client:
        client.send(request({**ASK, "stream": False}))
        await client.see(b"chat.completion")
        await provider.until(lambda log: log[0].how == "completed")

    (played,) = provider.log
    assert played.first_byte_at is not None
    assert played.first_byte_at - played.at >= 0.2
    assert played.tokens_sent == 20


async def test_the_log_also_knows_the_time_of_day():
    before = time.time()
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request())
        await provider.until(lambda log: log and log[0].how)

    (played,) = provider.log
    assert before - 1 < played.wall(played.at) < time.time() + 1


# -- whoever leaves is noticed at once


@pytest.mark.parametrize(
    ("reply", "tokens"),
    [
        (Reply("", fault=Fault(never_answers=True)), 0),
        (Reply("Hello.", first_byte_after=60), 0),
        (Reply("one two three", fault=Fault(stall_after_tokens=2)), 2),
        (Reply("one two three", tokens_per_second=0.01), 1),
        (Reply("one two three", fault=Fault(stall_before_end=True)), 3),
        (Reply("", calls=[("search", {"q": "long enough for pieces"})], fault=Fault(stall_after_tokens=2)), 2),
    ],
    ids=["never_answers", "before_the_first_byte", "stalled", "between_tokens", "before_the_end", "in_a_call"],
)
@pytest.mark.parametrize("way", ["close", "reset"])
async def test_a_client_that_leaves_is_noticed_at_once_and_not_at_the_next_token(reply: Reply, tokens: int, way: str):
    async with Provider(reply) as provider, line(provider.port) as client:
        client.send(request())
        await provider.until(lambda log: log and log[0].tokens_sent == tokens)

        left = time.monotonic()
        if way == "reset":
            linger = client.writer.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.writer.transport.abort()
        else:
            client.writer.close()
        await provider.until(lambda log: log[0].how == "disconnected")

    (played,) = provider.log
    assert played.disconnected_at is not None
    assert left <= played.disconnected_at < left + SOON
    assert played.ended_at is not None
    assert played.tokens_sent == tokens
    assert played.tokens_since(left) == 0
    assert played.tokens_after_disconnect == 0


async def test_a_reply_that_keeps_generating_counts_what_nobody_reads():
    reply = Reply(["tok "] * 50, tokens_per_second=50, keeps_generating=True)
    async with Provider(reply) as provider, line(provider.port) as client:
        client.send(request())
        await client.see(b"tok")
        client.writer.close()
        await provider.until(lambda log: log[0].how == "disconnected")

    (played,) = provider.log
    assert played.tokens_after_disconnect > 0
    assert played.tokens_sent + played.tokens_after_disconnect == 50
    assert played.disconnected_at is not None
    assert played.ended_at is not None
    assert played.disconnected_at < played.ended_at


async def test_a_client_that_does_not_read_is_waited_for():
    """What counts as sent has been taken by the operating system, so a client that is not there takes little of it."""
    reply = Reply(["x" * 1000] * 20_000)
    async with Provider(reply) as provider, line(provider.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        client.send(request())
        await provider.until(lambda log: log and log[0].tokens_sent)
        await asyncio.sleep(0.3)
        held = provider.log[0].tokens_sent
        assert held < 20_000

        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await client.see(b"[DONE]")

    assert provider.log[0].how == "completed"
    assert provider.log[0].tokens_sent == 20_000


async def test_keep_alives_go_on_while_an_answer_stalls():
    reply = Reply("one two", fault=Fault(stall_after_tokens=1, pings_every=0.02))
    async with Provider(reply) as provider, line(provider.port) as client:
        client.send(request())
        while client.seen.count(b": keep-alive") < 3:
            client.seen += await client.reader.read(65536)

        assert provider.log[0].tokens_sent == 1
        assert b" two" not in client.seen


async def test_everything_but_the_last_event_has_come_before_the_end_stalls():
    async with Provider(Reply("one", fault=Fault(stall_before_end=True))) as provider, line(provider.port) as client:
        client.send(request({**ASK, "stream_options": {"include_usage": True}}))
        seen = await client.see(b'"total_tokens"')

    assert b'"finish_reason":"stop"' in seen
    assert b"[DONE]" not in seen


async def test_a_fault_beyond_the_last_token_happens_before_the_end():
    async with Provider(Reply("one two", fault=Fault(stall_after_tokens=9))) as provider, line(provider.port) as client:
        client.send(request())
        seen = await client.see(b" two")
        await provider.until(lambda log: log[0].tokens_sent == 2)

    assert b'finish_reason":"stop' not in seen
    assert provider.log[0].fault == "stall"


async def test_an_error_waits_for_its_first_byte_too():
    reply = Reply(fault=Fault(status=500), first_byte_after=0.2)
    async with Provider(reply) as provider, line(provider.port) as client:
        client.send(request())
        await client.see(b"HTTP/1.1 500")
        async with line(provider.port) as other:
            other.send(request())
            await provider.until(lambda log: len(log) == 2)
        await provider.until(lambda log: log[1].how == "disconnected")

    answered, left = provider.log
    assert answered.first_byte_at is not None
    assert answered.first_byte_at - answered.at >= 0.2
    assert (answered.how, left.first_byte_at) == ("fault", None)


async def test_a_provider_that_closes_breaks_off_what_it_is_saying():
    async with Provider(Reply("one two", tokens_per_second=0.01)) as provider, line(provider.port) as client:
        client.send(request())
        await client.see(b"one")
        address = provider.port

        await provider.__aexit__(None, None, None)
        with pytest.raises((ConnectionError, AssertionError)):
            await client.see(b"[DONE]")
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", address)
        await provider.__aenter__()

    assert provider.log[0].how == "shutdown"
    assert provider.port == address


async def test_waiting_for_what_never_comes_says_what_there_is():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request())
        await provider.until(lambda log: log and log[0].how)

        with pytest.raises(TimeoutError, match=r"The log has 1: completed, 1 tokens\."):
            await provider.until(lambda log: len(log) == 2, timeout=0.05)


async def test_waiting_with_a_mistake_says_so():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        asyncio.get_running_loop().call_later(0.05, client.send, request())
        with pytest.raises(ZeroDivisionError):
            await provider.until(lambda log: 1 / 0 if log else False)


async def test_a_condition_about_a_request_that_has_not_come_yet_does_not_hold():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        asyncio.get_running_loop().call_later(0.05, client.send, request())
        await provider.until(lambda log: log[0].how == "completed")


async def test_two_hundred_streams_at_a_time_are_all_played_to_the_end():
    async with Provider(Reply(["tok "] * 20, tokens_per_second=20)) as provider:

        async def one() -> bytes:
            async with line(provider.port) as client:
                client.send(request())
                return await client.see(b"[DONE]")

        answers = await asyncio.gather(*[one() for _ in range(200)])

    assert {answer.count(b'"content":"tok "') for answer in answers} == {20}
    assert {played.how for played in provider.log} == {"completed"}
    assert provider.connections == 200
