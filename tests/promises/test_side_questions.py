"""A question on the side is never lost: not to the end of its run, and not after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from checkrein import Agent, Runtime
from checkrein.control.control import Control, Settling
from checkrein.control.viewer import look
from checkrein.core.enums import CallKind, Status, Verb
from checkrein.core.events import CallFinished, RunFinished, VerbSettled
from checkrein.errors import Refused
from checkrein.models import Request, ScriptedModel, Turn, User
from checkrein.processes.identity import this_process
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import StallingModel, until_state, until_status
from tests.support.text import words
from tests.support.witness import until

pytestmark = pytest.mark.anyio

QUESTION = "Which customers have you looked at?"


def model(
    work: str, answer: str, *, pace: float | None = None, lets: Mapping[int, asyncio.Event] | None = None
) -> ScriptedModel:
    """Says `work` to the goal and `answer` to the question, and keeps the requests: the witness of what was asked."""

    def reply(request: Request) -> Turn:
        last = request.messages[-1]
        return Turn(answer if isinstance(last, User) and last.text == QUESTION else work)

    return StallingModel(reply, lets or {}, tokens_per_second=pace)


def is_asked(talker: ScriptedModel) -> Callable[[], bool]:
    return lambda: any(User(QUESTION) in request.messages for request in talker.asked)


async def test_a_question_whose_run_completes_first_is_answered(runtime: Runtime) -> None:
    """D20: the run has nothing left to do long before the answer is there."""
    talk, answer = asyncio.Event(), asyncio.Event()
    talker = model(words(40), words(120), lets={1: talk, 2: answer})
    run = await runtime.start(Agent("talker", model=talker), "Talk.")
    await until(lambda: talker.live == 1)
    asking = asyncio.create_task(run.ask(QUESTION))
    await until(lambda: talker.live == 2)
    talk.set()
    await until_state(run, lambda state: [live.kind for live in state.live.values()] == [CallKind.ASK])

    answer.set()

    assert await asking == words(120)

    assert await run.result() == words(40)
    records = await runtime.journal.read(run.id)
    places = {type(record.event).__name__: record.seq for record in records}
    (ended,) = [r.seq for r in records if isinstance(r.event, CallFinished) and r.event.call == "c1"]
    assert ended < places["VerbSettled"], "its program was through before the answer was"
    assert [r.event.outcome.value for r in records if isinstance(r.event, CallFinished)] == ["completed", "completed"]


async def test_a_question_to_a_run_that_is_over_is_answered_from_its_record(runtime: Runtime) -> None:
    talker = model("Ada and Bob.", "Those two.")
    run = await runtime.start(Agent("talker", model=talker), "Who?")
    await run.result()

    assert await run.ask(QUESTION) == "Those two."

    asked = talker.asked[-1]
    assert [getattr(message, "text", "") for message in asked.messages] == ["Who?", "Ada and Bob.", QUESTION]
    assert asked.tools == ()
    view = await look(runtime.journal, run.id, at=0.0)
    assert (view.status, view.result) == (Status.COMPLETED, "Ada and Bob.")
    assert [(receipt.verb, receipt.answer) for receipt in view.receipts] == [(Verb.ASK, "Those two.")]
    assert await run.ask(QUESTION) == "Those two.", "and again"


async def test_a_run_that_failed_can_be_asked_too(runtime: Runtime) -> None:
    def reply(request: Request) -> Turn:
        if request.messages[-1] == User(QUESTION):
            return Turn("None, it broke.")
        raise RuntimeError("broken")

    run = await runtime.start(Agent("talker", model=ScriptedModel(reply)), "Talk.")
    await until_status(run, Status.FAILED)

    assert await run.ask(QUESTION) == "None, it broke."


async def test_a_run_that_was_stopped_begins_nothing_any_more_not_even_an_answer(runtime: Runtime) -> None:
    talker = model(words(5000), "Those two.", pace=50)
    run = await runtime.start(Agent("talker", model=talker), "Talk.")
    await until_state(run, lambda state: state.live)
    await run.cancel()

    with pytest.raises(Refused):
        await run.ask(QUESTION)

    assert not is_asked(talker)()


async def test_without_a_process_that_has_the_agent_the_question_waits_for_one(store: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(Agent("talker", model=model("Ada.", "")), "Who?")
        await run.result()
    async with Runtime(store) as runtime:
        control = Control(runtime.journal, this_process())
        waits = await control.ask(run.id, QUESTION, by="ann", wait=0.3)

        assert isinstance(waits, Settling)
        assert "talker" in waits.waiting_for

    talker = model("Ada.", "Only Ada.")
    async with Runtime(store, agents=[Agent("talker", model=talker)]) as runtime:
        again = await runtime.get(run.id)
        assert await again.ask(QUESTION) == "Only Ada."
        records = await runtime.journal.read(run.id)

    answers = [r.event.receipt.answer for r in records if isinstance(r.event, VerbSettled)]
    assert answers == ["Only Ada.", "Only Ada."], "the one that waited is answered as well"
    assert sum(isinstance(r.event, RunFinished) for r in records) == 1


async def test_a_cancel_does_not_wait_for_an_answer(runtime: Runtime) -> None:
    """D20 D2: the run has nothing left to do but to wait for the answer, and is cancelled meanwhile."""
    talk = asyncio.Event()
    talker = model(words(40), words(5000), lets={1: talk, 2: asyncio.Event()})
    run = await runtime.start(Agent("talker", model=talker), "Talk.")
    await until(lambda: talker.live == 1)
    asking = asyncio.create_task(run.ask(QUESTION, wait=PATIENCE_SECONDS))
    await until(lambda: talker.live == 2)
    talk.set()
    await until_state(run, lambda state: [live.kind for live in state.live.values()] == [CallKind.ASK])

    async with asyncio.timeout(within(10)):
        await run.cancel()

    assert talker.live == 0
    with pytest.raises(Refused):
        await asking
