"""What a second look found: odd orders of verbs, odd tools and odd texts, each with what should have happened."""

from __future__ import annotations

import asyncio
import datetime
import enum
from collections.abc import Awaitable, Callable
from typing import Any

import pydantic
import pytest

from checkrein import Agent, Context, Interrupted, Runtime, agent, tool
from checkrein.core.enums import Status
from checkrein.core.events import StepStarted
from checkrein.driver.permits import CallRunner
from checkrein.errors import MisuseError, ModelUnauthorised, Refused
from checkrein.models import Failure, Message, Request, ScriptedModel, ToolCall, ToolResult, Turn, as_json
from checkrein.run import Run
from tests.support.runs import in_flight, result, settled, until_state, until_status
from tests.support.text import words

pytestmark = pytest.mark.anyio

sent: list[int] = []
seen: list[str] = []
undone: list[str] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    sent.clear()
    seen.clear()
    undone.clear()


@tool(effect="irreversible")
async def wire(n: int) -> str:
    """Send money."""
    sent.append(n)
    return f"sent {n}"


@tool(effect="none")
async def wait() -> None:
    """Take long."""
    await asyncio.sleep(600)


def payer(*more: Turn | str) -> Agent:
    return Agent("payer", model=ScriptedModel([Turn("Pay.", calls=[("wire", {"n": 1})]), *more]), tools=[wire, wait])


class Listener:
    """An agent that only takes down what it is told."""

    def __init__(self) -> None:
        self.told: tuple[Message, ...] = ()
        self.agent = Agent("listener", model=ScriptedModel(self._take_down))

    def _take_down(self, request: Request) -> str:
        self.told = request.messages
        return "Understood."

    def results(self) -> list[str]:
        return [message.content for message in self.told if isinstance(message, ToolResult)]


# -- approvals


async def test_a_pause_between_the_gate_and_the_question_does_not_lose_the_question(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consent, paused = CallRunner._consented, asyncio.Event()
    runs: list[Run] = []

    async def late(self: CallRunner, spec: Any, *rest: Any) -> Any:
        if spec.approval is not None and not paused.is_set():
            paused.set()
            await runs[0].pause()
        return await consent(self, spec, *rest)

    monkeypatch.setattr(CallRunner, "_consented", late)
    paying = Agent("payer", model=ScriptedModel([Turn("Pay.", calls=[("wire", {"n": 1})]), "Paid."], 50), tools=[wire])
    async with Runtime(store) as runtime:
        runs.append(await runtime.start(paying, "Pay."))
        await until_status(runs[0], Status.PAUSED)
        await runs[0].resume()
        state = await until_state(runs[0], lambda state: state.approvals)
        await runs[0].approve(*state.approvals)
        assert await result(runs[0]) == "Paid."
    assert sent == [1]


@agent
async def asks_first(ctx: Context, goal: str) -> str:
    try:
        return str(await ctx.tool(wire, n=1))
    except Interrupted:
        seen.append("interrupted")
        raise


async def test_a_program_that_waits_for_an_approval_never_sees_a_cancel(store: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(asks_first, "Pay.")
        await until_state(run, lambda state: state.approvals)
        assert settled(await run.cancel()).status is Status.CANCELLED
    assert seen == []


# -- what the next run of a thread is told


async def _declined(run: Run, call: str) -> None:
    await run.deny(call)
    await result(run)


async def _withdrawn(run: Run, call: str) -> None:
    await run.cancel()


@pytest.mark.parametrize(
    ("end", "told"), [(_declined, "A person declined this."), (_withdrawn, "Not begun: the run was stopped first.")]
)
async def test_the_next_run_is_not_told_that_an_unapproved_call_may_have_happened(
    store: str, end: Callable[[Run, str], Awaitable[None]], told: str
) -> None:
    listener = Listener()
    async with Runtime(store) as runtime:
        run = await runtime.start(payer("Not paid."), "Pay.")
        (call,) = (await until_state(run, lambda state: state.approvals)).approvals
        await end(run, call)
        await result(await runtime.start(listener.agent, "And?", continues=run.id))
    assert listener.results() == [told]
    assert sent == []


@tool(effect="none")
async def look(n: int) -> int:
    """Look."""
    return n


async def test_the_next_run_is_told_that_a_call_of_an_unknown_tool_was_not_done(store: str) -> None:
    listener = Listener()
    wrong = Agent(
        "wrong", model=ScriptedModel([Turn("Go.", calls=[("nope", {}), ("look", {"m": 1})]), "So."]), tools=[look]
    )
    async with Runtime(store) as runtime:
        run = await runtime.start(wrong, "Go.")
        await result(run)
        await result(await runtime.start(listener.agent, "And?", continues=run.id))
    unknown, misfit = listener.results()
    assert unknown == "There is no tool nope; there are: look."
    assert misfit.startswith("The arguments do not fit")


async def discard(call: Any) -> None:
    undone.append(call.result)


@tool(undo=discard)
async def draft(text: str) -> str:
    """Write a draft."""
    return text


async def test_what_was_undone_in_one_run_is_not_said_of_a_call_with_the_same_id_in_another(store: str) -> None:
    def same_id(name: str, arguments: dict[str, Any]) -> ToolCall:
        return ToolCall(id="call_0", name=name, arguments=as_json(arguments))

    def first(request: Request) -> Turn:
        if not any(isinstance(message, ToolResult) for message in request.messages):
            return Turn("Draft.", calls=[same_id("draft", {"text": "one"})])
        return Turn("Wait.", calls=[("wait", {})])

    def second(request: Request) -> Turn:
        is_new = not any(isinstance(message, ToolResult) and message.content == "two" for message in request.messages)
        return Turn("Again.", calls=[same_id("draft", {"text": "two"})]) if is_new else Turn("Done.")

    listener = Listener()
    async with Runtime(store) as runtime:
        run = await runtime.start(Agent("first", model=ScriptedModel(first), tools=[draft, wait]), "Go.")
        await in_flight(run, "wait")
        await run.cancel()
        again = await runtime.start(
            Agent("second", model=ScriptedModel(second), tools=[draft]), "Go.", continues=run.id
        )
        await result(again)
        await result(await runtime.start(listener.agent, "And?", continues=again.id))
    one, _, two = listener.results()
    assert (one, two) == ("one\n\nThis was done and then undone.", "two")


# -- programs


@agent
async def delegates(ctx: Context, goal: str) -> str:
    helper = Agent("helper", model=ScriptedModel([f"helped with {goal}"]))
    return str(await ctx.spawn(helper, "Help."))


async def test_a_sub_run_is_driven_by_the_agent_that_was_given_and_not_by_another_of_its_name(store: str) -> None:
    async with Runtime(store) as runtime:
        assert await result(await runtime.start(delegates, "one")) == "helped with one"
        assert await result(await runtime.start(delegates, "two")) == "helped with two"


@agent
async def calls_a_tool(ctx: Context, goal: str) -> Any:
    return await ctx.call(wire, 1)


async def book(what: str) -> str:
    seen.append(what)
    return what


@agent
async def undoes_with_a_local_function(ctx: Context, goal: str) -> Any:
    async def unbook(call: Any) -> None: ...

    return await ctx.call(book, "table", undo=unbook)


@pytest.mark.parametrize(
    ("program", "why"), [(calls_a_tool, "use `ctx.tool`"), (undoes_with_a_local_function, "top level of a module")]
)
async def test_a_program_is_refused_what_would_pass_by_an_approval_or_an_undo(program: Any, why: str) -> None:
    async with Runtime("memory:") as runtime:
        with pytest.raises(Exception, match=why):
            await result(await runtime.start(program, "Go."))
    assert sent == []
    assert seen == []


def gathered(a: int, **others: int) -> list[Any]:
    return [a, others]


def given(kwargs: dict[str, int]) -> dict[str, int]:
    return kwargs


@agent
async def calls_with_keywords(ctx: Context, goal: str) -> Any:
    return [await ctx.call(gathered, 1, b=2), await ctx.call(given, {"a": 1})]


async def test_a_worker_is_given_keywords_whatever_they_are_gathered_in(store: str) -> None:
    async with Runtime(store) as runtime:
        assert await result(await runtime.start(calls_with_keywords, "Go.")) == [[1, {"b": 2}], {"a": 1}]


@agent
async def walks_backwards(ctx: Context, goal: str) -> None:
    ctx.plan(["A", "B"])
    for title in ("B", "A", "C"):
        async with ctx.step(title):
            pass


async def test_a_planned_step_keeps_its_number_when_it_begins_out_of_turn() -> None:
    async with Runtime("memory:") as runtime:
        run = await runtime.start(walks_backwards, "Go.")
        await result(run)
        records = [record.event for record in await runtime.journal.read(run.id)]
    started = [(event.title, event.step) for event in records if isinstance(event, StepStarted)]
    assert started == [("B", 2), ("A", 1), ("C", 3)]


# -- tools


class Colour(enum.Enum):
    RED = "red"


class Place(pydantic.BaseModel):
    x: int


def kinds(day: datetime.date, colour: Colour, place: Place, numbers: set[int], text: str = "") -> list[str]:
    """Say what it was given."""
    return [type(one).__name__ for one in (day, colour, place, numbers, text)]


async def kinds_async(day: datetime.date, colour: Colour, place: Place, numbers: set[int], text: str = "") -> list[str]:
    """Say what it was given."""
    return kinds(day, colour, place, numbers, text)


_KINDS = [
    tool(effect="none")(kinds),
    tool(effect="none", isolation="thread", name="threaded")(kinds),
    tool(kinds_async),
]


@pytest.mark.parametrize("used", _KINDS, ids=lambda used: used.name)
async def test_a_tool_is_given_the_types_of_its_signature(store: str, used: Any) -> None:
    arguments = {"day": "2026-11-16", "colour": "red", "place": {"x": 1}, "numbers": [1]}
    replies: list[str] = []

    def model(request: Request) -> Turn:
        replies.extend(message.content for message in request.messages if isinstance(message, ToolResult))
        return Turn("So.") if replies else Turn("Go.", calls=[(used.name, arguments)])

    async with Runtime(store) as runtime:
        await result(await runtime.start(Agent("typed", model=ScriptedModel(model), tools=[used]), "Go."))
    assert replies == ['["date","Colour","Place","set","str"]']


def named_like_a_method(schema: str, json: str = "", copy: int = 1) -> None:
    """Harmless."""


async def positional(n: int, /) -> None:
    """No name to give it by."""


async def hidden(_n: int) -> None:
    """A name that no model may use."""


def test_a_parameter_may_be_called_like_a_method_of_a_model() -> None:
    assert set(tool(named_like_a_method).schema["properties"]) == {"schema", "json", "copy"}


@pytest.mark.parametrize("function", [positional, hidden])
def test_a_tool_that_no_model_could_call_is_refused_when_the_agent_is_built(function: Any) -> None:
    with pytest.raises(MisuseError, match="takes"):
        Agent("a", model=ScriptedModel([]), tools=[function])


def account(name: str) -> Any:
    async def refund(call: Any) -> None:
        undone.append(name)

    @tool(undo=refund, name=f"charge_{name}")
    async def charge() -> str:
        """Charge it."""
        return name

    return charge


async def test_each_tool_is_undone_by_its_own_undo_though_they_were_made_alike(store: str) -> None:
    turns = [Turn("Both.", calls=[("charge_a", {}), ("charge_b", {})]), Turn("Wait.", calls=[("wait", {})])]
    charging = Agent("charging", model=ScriptedModel(turns), tools=[account("a"), account("b"), wait])
    async with Runtime(store) as runtime:
        run = await runtime.start(charging, "Charge.")
        await in_flight(run, "wait")
        await run.cancel()
    assert sorted(undone) == ["a", "b"]


# -- texts with half a character


async def half_an_error() -> None:
    """A file name that is no text does this."""
    raise OSError("no file \udcff")


async def half_a_result() -> str:
    """Likewise."""
    return "\ud800"


@pytest.mark.parametrize("function", [half_an_error, half_a_result])
async def test_half_a_character_from_a_tool_does_not_end_its_run(store: str, function: Any) -> None:
    model = ScriptedModel([Turn("Go.", calls=[(function.__name__, {})]), "Went on."])
    async with Runtime(store) as runtime:
        assert await result(await runtime.start(Agent("half", model=model, tools=[function]), "Go.")) == "Went on."


async def test_half_a_character_from_a_model_is_replaced(store: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(Agent("half", model=ScriptedModel(["so \ud800 it is"])), "Go.")
        assert await result(run) == "so \ufffd it is"


# -- side questions


async def _fails(run: Run) -> None: ...


async def _cancels(run: Run) -> None:
    await until_state(run, lambda state: any(call.startswith("ask:") for call in state.live))
    await run.cancel()


@pytest.mark.parametrize(
    ("question", "meanwhile", "why"), [("fail", _fails, "The key was refused"), ("slow", _cancels, "it was stopped")]
)
async def test_a_question_that_failed_or_was_cut_off_has_no_answer(
    store: str, question: str, meanwhile: Callable[[Run], Awaitable[None]], why: str
) -> None:
    def model(request: Request) -> Turn:
        asked = getattr(request.messages[-1], "text", "")
        if asked == "fail":
            return Turn("", fails=Failure(ModelUnauthorised("The key was refused.")))
        return Turn(words(400)) if asked == "slow" else Turn("", calls=[("wait", {})])

    asking = Agent("asking", model=ScriptedModel(model, tokens_per_second=20), tools=[wait])
    async with Runtime(store) as runtime:
        run = await runtime.start(asking, "Go.")
        await in_flight(run, "wait")
        answer = asyncio.create_task(run.ask(question))
        await meanwhile(run)
        with pytest.raises(Refused, match=why) as refused:
            await answer
        assert refused.value.code == "no_answer"


# -- the runtime in wrong hands


async def test_run_sync_inside_an_event_loop_says_what_to_use_instead() -> None:
    with pytest.raises(MisuseError, match=r"runtime\.start"):
        Runtime("memory:").run_sync(Agent("a", model=ScriptedModel(["x"])), "Go.")


async def test_a_runtime_says_that_it_is_not_open_or_is_open_already() -> None:
    runtime = Runtime("memory:")
    with pytest.raises(MisuseError, match="not open"):
        await runtime.start(Agent("a", model=ScriptedModel(["x"])), "Go.")
    async with runtime:
        with pytest.raises(MisuseError, match="open already"):
            await runtime.__aenter__()
        assert await runtime.runs() == ()


async def test_a_redirect_of_a_busy_thread_reaches_the_run_at_work_and_not_one_that_is_queued(store: str) -> None:
    def waits_once(request: Request) -> Turn:
        return Turn("", calls=[("wait", {})]) if len(request.messages) == 1 else Turn("Yes.")

    async with Runtime(store) as runtime:
        first = await runtime.start(Agent("w", model=ScriptedModel(waits_once), tools=[wait]), "Go.", thread="t")
        await in_flight(first, "wait")
        await runtime.start("w", "Later.", thread="t")
        assert (await runtime.start("w", "Be brief.", thread="t", if_busy="redirect")).id == first.id
        with pytest.raises(MisuseError, match="queue, redirect, refuse"):
            await runtime.start("w", "Go.", thread="t", if_busy="perhaps")  # type: ignore[call-overload]
