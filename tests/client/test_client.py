"""What a program does with runs of a server. The witness of a stop is the log that the tools write themselves."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from contextlib import aclosing
from typing import Any

import pytest

from checkrein import Agent, AsyncClient, Client, Settling
from checkrein.client.async_run import AsyncRunHandle
from checkrein.control.view import RunView
from checkrein.core.enums import Status, Verb
from checkrein.core.receipts import Receipt
from checkrein.core.state import Waiting
from checkrein.errors import (
    CheckreinError,
    Forbidden,
    MisuseError,
    Refused,
    RequestRefused,
    RunFailed,
    RunNotFound,
    ServerUnavailable,
    WrongInput,
)
from checkrein.models import ScriptedModel, Turn
from tests.client.conftest import Served
from tests.support.abort_tools import draft, work
from tests.support.agent_tools import lines, wire_money
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

LONG = sentences(300)
TOKEN = "ckr_secret-of-ann"


def talker(pace: float = 50.0) -> Agent:
    return Agent("talker", model=ScriptedModel(lambda _: Turn(LONG), tokens_per_second=pace))


def quick() -> Agent:
    return Agent("quick", model=ScriptedModel(lambda _: Turn("Done.")))


def drafter(witness: Witness) -> Agent:
    """Makes a draft that a cancel discards, and then works for minutes; after a redirect it works again."""
    turns = [
        Turn("First a draft.", calls=[("draft", {"log": witness.log})]),
        Turn("Now I work.", calls=[("work", {"log": witness.log, "seconds": 600})]),
        Turn("Then that.", calls=[("work", {"log": witness.log, "word": "other", "seconds": 600})]),
        Turn("Done."),
    ]
    return Agent("drafter", model=ScriptedModel(turns), tools=[draft, work])


def payer(witness: Witness) -> Agent:
    turns = [Turn("I pay.", calls=[("wire_money", {"log": witness.log})]), Turn("Paid.")]
    return Agent("payer", model=ScriptedModel(turns), tools=[wire_money])


async def until(run: AsyncRunHandle, holds: Any) -> RunView:
    """The run once `holds` of it."""
    async with asyncio.timeout(PATIENCE_SECONDS), aclosing(run.live()) as views:
        async for view in views:
            if holds(view):
                return view
    raise AssertionError("it has finished before")


async def waiting_run(served: Served, witness: Witness) -> AsyncRunHandle:
    served.runtime.add(payer(witness))
    run = await served.client.start("payer", "pay")
    await until(run, lambda view: view.approvals)
    return run


# -- verbs


async def test_a_run_is_paused_redirected_and_cancelled_and_a_call_of_it_aborted(
    served: Served, witness: Witness
) -> None:
    served.runtime.add(drafter(witness))
    run = await served.client.start("drafter", "work")
    await witness.saw("work")

    pausing = await run.pause(reason="let me look", wait=0)
    (call,) = [one.id for one in (await run.view()).calls if one.name == "work"]
    aborted = await run.abort(call, wait=PATIENCE_SECONDS)
    await until(run, lambda view: view.status is Status.PAUSED)
    redirected = await run.redirect("rather that", wait=PATIENCE_SECONDS)
    await witness.saw("other")
    cancelled = await run.cancel(reason="enough", wait=PATIENCE_SECONDS)

    assert isinstance(pausing, Settling), "the tool in flight may finish first"
    receipts = [one.verb for one in (aborted, redirected, cancelled) if isinstance(one, Receipt)]
    assert receipts == [Verb.ABORT, Verb.REDIRECT, Verb.CANCEL]
    assert isinstance(cancelled, Receipt)
    assert (cancelled.by, cancelled.reason, cancelled.status) == ("you", "enough", Status.CANCELLED)
    assert witness.words()[-1] == "undo draft", "the draft is discarded last, and nothing is done after it"
    assert await witness.is_quiet()


async def test_a_call_is_approved_and_made(served: Served, witness: Witness) -> None:
    run = await waiting_run(served, witness)
    (approval,) = (await run.view()).approvals

    call = await run.approve(approval.call, note="go on")

    assert (call.id, call.name) == (approval.call, "wire_money")
    assert await run.result(timeout=PATIENCE_SECONDS) == "Paid."
    assert lines(witness.log) == ["wired"]


async def test_a_call_is_denied_and_not_made(served: Served, witness: Witness) -> None:
    run = await waiting_run(served, witness)
    (approval,) = (await run.view()).approvals

    await run.deny(approval.call)

    await run.result(timeout=PATIENCE_SECONDS)
    assert lines(witness.log) == []


async def test_a_verb_that_is_sent_again_with_its_id_is_done_once_and_answered_the_same(served: Served) -> None:
    served.runtime.add(talker())
    run = await served.client.start("talker", "go")

    first = await run.pause(request_id="click-0001", wait=PATIENCE_SECONDS)
    again = await run.pause(request_id="click-0001", wait=PATIENCE_SECONDS)

    assert first == again
    assert [one.verb for one in (await run.view()).verbs] == ["pause"]


async def test_a_side_question_is_answered_as_text(served: Served) -> None:
    says = [Turn(LONG), Turn("Half of it.")]
    served.runtime.add(Agent("talker", model=ScriptedModel(lambda _: says.pop(0), tokens_per_second=50)))
    run = await served.client.start("talker", "go")
    await until(run, lambda view: view.calls)

    assert (await run.ask("How far are you?", wait=PATIENCE_SECONDS)).strip() == "Half of it."


async def test_the_kill_switch_is_latched_and_lifted(served: Served) -> None:
    served.runtime.add(talker())
    run = await served.client.start("talker", "go")

    halted = await served.client.halt("run", run.id, reason="runaway", wait=PATIENCE_SECONDS)
    lifted = await served.client.reset("run", run.id)

    assert [one.run for one in halted.receipts] == [run.id]
    assert (lifted.was_latched, (await run.view()).status) == (True, Status.KILLED)
    await run.add_reason("runaway", note="afterwards")
    assert [one.note for one in (await run.view()).reasons] == ["afterwards"]


# -- results


async def test_a_result_is_waited_for_and_a_run_without_one_says_why(served: Served) -> None:
    served.runtime.add(quick())
    served.runtime.add(talker())

    assert await (await served.client.start("quick", "go")).result(timeout=PATIENCE_SECONDS) == "Done."

    run = await served.client.start("talker", "go")
    waiting = asyncio.create_task(run.result(timeout=PATIENCE_SECONDS))
    await run.cancel(wait=PATIENCE_SECONDS)
    with pytest.raises(RunFailed, match="was cancelled") as failed:
        await waiting
    assert (failed.value.run, failed.value.status) == (run.id, "cancelled")


async def test_whoever_waits_for_a_result_is_told_once_that_a_person_is_waited_for(
    served: Served, witness: Witness
) -> None:
    served.runtime.add(payer(witness))
    run = await served.client.start("payer", "go")
    told: list[Waiting] = []
    asked = asyncio.Event()

    def tell(waiting: Waiting) -> None:
        told.append(waiting)
        asked.set()

    waiting = asyncio.create_task(run.result(timeout=PATIENCE_SECONDS, on_waiting=tell))
    await asyncio.wait_for(asked.wait(), PATIENCE_SECONDS)
    assert told[0].call is not None
    await run.approve(told[0].call)

    assert await waiting == "Paid."
    assert [one.kind for one in told] == ["approval"]


# -- lists


async def test_all_runs_are_walked_through_page_by_page(served: Served) -> None:
    served.runtime.add(quick())
    runs = [await served.client.start("quick", f"number {n}") for n in range(5)]
    for run in runs:
        await run.result(timeout=PATIENCE_SECONDS)

    found = [one.id async for one in served.client.iter_runs(limit=2, agent="quick", status=["completed"])]

    assert found == [run.id for run in reversed(runs)]
    assert [one.goal for one in (await served.client.runs(search="number 3")).runs] == ["number 3"]
    assert [card.name for card in await served.client.agents()] == ["quick"]


# -- errors


async def test_errors_are_those_of_the_server_with_their_codes(served: Served) -> None:
    served.runtime.add(quick())
    run = await served.client.start("quick", "go")
    await run.result(timeout=PATIENCE_SECONDS)

    with pytest.raises(Refused) as refused:
        await run.pause()
    with pytest.raises(RunNotFound) as unknown:
        await served.client.run("r-nobody").view()
    with pytest.raises(RequestRefused) as no_agent:
        await served.client.start("nobody", "go")
    with pytest.raises(RequestRefused) as no_call:
        await run.call("c99")
    async with AsyncClient(served.url, headers={"who": "ann:viewer:"}) as viewer:
        with pytest.raises(Forbidden) as forbidden:
            await viewer.start("quick", "go")

    assert (refused.value.run, refused.value.status) == (run.id, "completed")
    assert (unknown.value.code, unknown.value.run) == ("run_not_found", "r-nobody")
    assert (no_agent.value.code, no_agent.value.status, no_agent.value.known) == ("unknown_agent", 422, ("quick",))
    assert (no_call.value.code, no_call.value.status) == ("call_not_found", 404)
    assert forbidden.value.status == 403


async def test_a_server_that_is_away_is_named_with_what_would_help() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with AsyncClient(url, TOKEN, retries=1) as client:
            with pytest.raises(ServerUnavailable, match="nothing listens") as away:
                await client.runs()

    assert (away.value.url, away.value.reason, away.value.is_unsent) == (url, "refused", True)
    assert "checkrein serve" in away.value.message


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8420", "ftp://host", "http://", "http://ann:pw@host", "http://host/?token=ckr_x", "http://h/#x"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(WrongInput, match="address of a server") as wrong:
        Client(url, TOKEN)

    assert wrong.value.code == "server_address"


@pytest.mark.parametrize("token", ["two words", "line\nend", "ümlaut"])
def test_a_token_that_fits_no_header_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(MisuseError) as wrong:
        Client("http://127.0.0.1:1", token)

    assert token not in wrong.value.message


# -- requests that are sent again


class Flaky:
    """A server that reads a request, and then does what it is told with the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        """None: none at all, the connection is closed."""
        self.requests: list[bytes] = []

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            writer.write(answer)
            await writer.drain()
        writer.close()


def http(status: int, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d x" % status, b"content-length: %d" % len(body), b"connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


RECEIPT = b'{"verb":"pause","run":"r-1","status":"paused","seq":3,"by":"ann"}'


async def test_a_verb_whose_answer_was_lost_is_sent_again_with_the_same_id() -> None:
    flaky = Flaky(None, http(503, b'{"code":"store_unavailable","message":"Locked."}'), http(200, RECEIPT))
    async with flaky as url, AsyncClient(url, TOKEN) as client:
        receipt = await client.run("r-1").pause()

    assert isinstance(receipt, Receipt)
    bodies = {request.rpartition(b"\r\n\r\n")[2] for request in flaky.requests}
    assert len(flaky.requests) == 3
    assert len(bodies) == 1
    assert b'"request_id"' in bodies.pop()


async def test_a_start_whose_answer_was_lost_is_not_sent_again() -> None:
    flaky = Flaky(None, http(201, b"{}"))
    async with flaky as url, AsyncClient(url, TOKEN) as client:
        with pytest.raises(ServerUnavailable, match="not known") as lost:
            await client.start("quick", "go")

    assert len(flaky.requests) == 1
    assert not lost.value.is_unsent


async def test_a_start_that_was_refused_for_a_moment_is_sent_again() -> None:
    view = b'{"id":"r-1","status":"queued","agent":"quick","goal":"","thread":"r-1"}'
    flaky = Flaky(http(503, b'{"code":"agents_loading","message":"Wait."}', b"retry-after: 0"), http(201, view))
    async with flaky as url, AsyncClient(url, TOKEN) as client:
        assert (await client.start("quick", "go")).id == "r-1"

    assert len(flaky.requests) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (http(200, b"<html>"), "malformed"),
        (http(502, b"<html>Bad gateway"), "fault"),
        (http(302, b"", b"location: https://elsewhere.test/?token=x"), "malformed"),
        (http(200, b'{"runs":3}'), "malformed"),
    ],
)
async def test_what_no_checkrein_server_answers_is_said_to_be_that(answer: bytes, reason: str) -> None:
    async with Flaky(*[answer] * 4) as url, AsyncClient(url, TOKEN, retries=1) as client:
        with pytest.raises(ServerUnavailable) as wrong:
            await client.runs()

    assert (wrong.value.reason, wrong.value.url) == (reason, url)
    assert "token=" not in wrong.value.message


# -- the token


async def test_the_token_is_in_no_repr_log_or_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    flaky = Flaky(None, None)
    async with flaky as url, AsyncClient(url, TOKEN, retries=1) as client:
        said += [repr(client), repr(client.transport), repr(vars(client.transport)), repr(client.run("r-1"))]
        try:
            await client.runs()
        except CheckreinError as error:
            said += _frames(error)

    assert len(said) > 4
    assert all(TOKEN.encode() in request for request in flaky.requests), "it was sent"
    assert [text for text in [*said, caplog.text] if TOKEN in text] == []


def _frames(error: BaseException | None) -> list[str]:
    """All that a traceback which shows local variables would show."""
    found = []
    while error is not None:
        found += [str(error), repr(error)]
        trace = error.__traceback__
        while trace is not None:
            if "tests" not in trace.tb_frame.f_code.co_filename:
                found += [repr(value) for value in trace.tb_frame.f_locals.values()]
            trace = trace.tb_next
        error = error.__context__
    return found


# -- the synchronous twin


async def test_a_program_that_is_not_async_does_the_same(served: Served, witness: Witness) -> None:
    served.runtime.add(drafter(witness))

    def program() -> tuple[Any, ...]:
        with Client(served.url, TOKEN) as client:
            run = client.start("drafter", "work")
            for view in run.live():
                if any(call.name == "work" for call in view.calls):
                    break
            receipt = run.cancel(wait=PATIENCE_SECONDS)
            seen = list(run.events())
            return receipt, seen, [one.id for one in client.iter_runs()], repr(run)

    receipt, seen, listed, shown = await asyncio.to_thread(program)

    assert receipt.status is Status.CANCELLED
    assert [item.seq for item in seen] == list(range(1, len(seen) + 1))
    assert listed == [receipt.run]
    assert shown == f"<RunHandle {receipt.run}>"
    assert await witness.is_quiet()
    assert "undo draft" in witness.words()


def test_a_client_that_is_closed_leaves_no_thread_and_says_so_when_it_is_used() -> None:
    client = Client("http://127.0.0.1:9", TOKEN, retries=0)
    with pytest.raises(ServerUnavailable):
        client.agents()

    client.close()
    client.close()

    assert [one for one in threading.enumerate() if one.name == "checkrein-client"] == []
    with pytest.raises(MisuseError, match="closed"):
        client.agents()
