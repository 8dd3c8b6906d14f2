"""A model request that somebody else makes: stopped, priced, watched, redacted, mended and redirected like our own.

The witness is the provider, which keeps its own clock and its own log, and the source, which notes what it was asked.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar

import pytest
from openai import AsyncOpenAI

from checkrein import (
    Answer,
    Asked,
    Context,
    Cost,
    Loops,
    RunFailed,
    Runtime,
    Secrets,
    Turns,
    Usage,
    WholeAnswer,
    agent,
)
from checkrein.agents.program import ProgramAgent
from checkrein.core.enums import Status
from checkrein.core.events import CallFinished, CallStarted
from checkrein.testing.provider import Fault, Provider, Reply
from tests.support.runs import until_status

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{n}" for n in range(400))
SLOW = Reply(LONG, tokens_per_second=50)
Messages = list[dict[str, str]]
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
async def clients() -> AsyncIterator[list[AsyncOpenAI]]:
    """Those that a test has made: they are closed with it."""
    made: list[AsyncOpenAI] = []
    Asker.clients = made
    yield made
    for client in made:
        await client.close()


class Asker:
    """A loop's request on the vendor's own client, with what it was asked each time."""

    clients: ClassVar[list[AsyncOpenAI]] = []

    def __init__(self, provider: Provider) -> None:
        self.client: Any = AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key, max_retries=0)
        self.clients.append(self.client)
        self.asked: list[Asked] = []

    def source(self, messages: Messages) -> Callable[[Asked], AsyncIterator[Any]]:
        async def ask(asked: Asked) -> AsyncIterator[Any]:
            self.asked.append(asked)
            stream = await self.client.chat.completions.create(
                model="gpt-5",
                messages=[*messages, *asked.messages],
                stream=True,
                stream_options={"include_usage": True},
            )
            text, usage = "", None
            async with stream:
                async for chunk in stream:
                    if chunk.usage is not None:
                        usage = Usage(
                            input_tokens=chunk.usage.prompt_tokens, output_tokens=chunk.usage.completion_tokens
                        )
                    if chunk.choices and (piece := chunk.choices[0].delta.content):
                        text += piece
                        yield piece
            yield WholeAnswer({"text": text}, usage)

        return ask


def asking(asker: Asker, *, turns: int = 1, name: str = "openai:gpt-5", **options: Any) -> ProgramAgent[list[Any]]:
    """A loop of somebody's own: it asks `turns` times, with its own history, and returns that."""

    @agent(name=f"own_loop_{next(_NUMBERS)}", **options)
    async def own_loop(ctx: Context, goal: str) -> list[Any]:
        messages: Messages = [{"role": "user", "content": goal}]
        for turn in range(turns):
            answer = await ctx.answer(asker.source(messages), name=name, place=f"turn:{turn}")
            messages += [*answer.messages, {"role": "assistant", "content": answer.value["text"]}]
        return messages

    return own_loop


async def test_it_is_shown_recorded_and_priced_like_a_model_of_ours() -> None:
    """D25: what it used is what the provider said, and what it costs is known."""
    async with Provider([Reply("Hello there.")]) as provider, Runtime("memory:") as runtime:
        run = await runtime.start(asking(Asker(provider)), "Greet.")
        result = await run.result()
        view = await run.view()

        assert result[-1] == {"role": "assistant", "content": "Hello there."}
        assert [(call.kind, call.name, call.now) for call in view.calls] == [("model", "openai:gpt-5", "completed")]
        assert view.usage.output_tokens > 0
        assert not view.usage.estimated
        assert view.usage.cost_usd
        assert provider.log[0].how == "completed"


async def test_a_cancel_closes_it_at_the_provider() -> None:
    """D2 D12: the provider's own clock has it that nothing was sent any more."""
    async with Provider([SLOW]) as provider, Runtime("memory:") as runtime:
        run = await runtime.start(asking(Asker(provider)), "Greet.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        receipt = await run.cancel()

        await provider.until(lambda log: log[0].how == "disconnected")
        assert receipt.tokens_after_stop == 0
        assert [call.now for call in receipt.calls] == ["aborted"]
        assert provider.log[0].tokens_sent < 400


async def test_paused_it_is_closed_and_asked_again_after_the_resume_with_what_it_had_said() -> None:
    """D6 D20 D28: the stream is closed at the provider, and what had come is kept."""
    async with Provider([SLOW, Reply("At last.")]) as provider, Runtime("memory:") as runtime:
        asker = Asker(provider)
        run = await runtime.start(asking(asker), "Greet.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        await run.pause()
        await provider.until(lambda log: log[0].how == "disconnected")
        await run.resume()
        result = await run.result()
        records = [record.event for record in await runtime.journal.read(run.id)]

    assert result == [{"role": "user", "content": "Greet."}, {"role": "assistant", "content": "At last."}]
    first, second = asker.asked
    assert (first.partial, first.instruction, first.messages) == ("", None, ())
    assert second.attempt == 2
    assert second.continues
    assert second.partial.startswith("word0 word1")
    assert [(event.call, event.attempt) for event in records if isinstance(event, CallStarted)] == [
        ("c1", 1),
        ("c1", 2),
    ]


async def test_redirected_it_is_asked_again_at_once_with_the_half_answer_and_the_instruction() -> None:
    """D21 D38: a loop on any client can be redirected; its own history has what was said."""
    async with Provider([SLOW, Reply("En français."), Reply("Fin.")]) as provider, Runtime("memory:") as runtime:
        run = await runtime.start(asking(Asker(provider), turns=2), "Greet.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        receipt = await run.redirect("In French.")
        result = await run.result()
        sent = [request.messages for request in provider.log]

    assert receipt.delivered
    assert sent[1][0]["content"] == "Greet."
    assert sent[1][1]["role"] == "assistant"
    assert sent[1][1]["content"].startswith("word0")
    assert sent[1][2] == {"role": "user", "content": "In French."}
    assert [one["role"] for one in sent[2]] == ["user", "assistant", "user", "assistant"]
    assert [one["role"] for one in result] == ["user", "assistant", "user", "assistant", "assistant"]


async def test_a_resume_with_an_instruction_in_the_middle_of_an_answer_goes_with_it() -> None:
    """D32"""
    async with Provider([SLOW, Reply("Oui.")]) as provider, Runtime("memory:") as runtime:
        asker = Asker(provider)
        run = await runtime.start(asking(asker), "Greet.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        await run.pause()
        await run.resume("In French.")
        await run.result()

        second = asker.asked[1]
        assert second.instruction == "In French."
        assert not second.continues
        assert second.partial
        assert [one["role"] for one in second.messages] == ["assistant", "user"]
        assert provider.log[1].messages[-1]["content"] == "In French."


async def test_what_came_with_an_answer_is_the_same_when_it_is_played_again(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    heard: list[Answer] = []

    async with Provider([SLOW, Reply("Oui."), SLOW, Reply("Fin.")]) as provider:
        asker = Asker(provider)

        @agent(name="heard")
        async def program(ctx: Context, goal: str) -> None:
            messages: Messages = [{"role": "user", "content": goal}]
            heard.append(await ctx.answer(asker.source(messages), name="openai:gpt-5", place="one"))
            await ctx.answer(asker.source(messages), name="openai:gpt-5", place="two")

        async with Runtime(store, agents=[program]) as first:
            run = await first.start(program, "Greet.")
            await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
            await run.pause()
            await run.resume("In French.")
            await provider.until(lambda log: len(log) == 3 and log[2].tokens_sent >= 5)
            await run.pause()
        async with Runtime(store, agents=[program]) as second:
            again = await second.get(run.id)
            await again.resume()
            await again.result()

        assert len(heard) == 2
        assert heard[0] == heard[1]
        assert heard[0].instruction == "In French."
        assert [one["role"] for one in heard[0].messages] == ["assistant", "user"]
        assert len(provider.log) == 4, "what was recorded was not asked again"


async def test_a_failure_that_may_pass_is_asked_again_and_one_that_a_person_can_mend_pauses() -> None:
    """401 of somebody else's client is *needs you*; a 429 of it is asked again by itself."""
    busy = Reply("Fine.", fault=Fault(status=429, retry_after=0.05, times=1))
    async with Provider([busy]) as provider, Runtime("memory:") as runtime:
        run = await runtime.start(asking(Asker(provider)), "Greet.")
        assert (await run.result())[-1]["content"] == "Fine."
        assert [request.how for request in provider.log] == ["fault", "completed"]

        asker = Asker(provider)
        asker.client.api_key = "wrong"
        run = await runtime.start(asking(asker), "Greet.")
        await until_status(run, Status.PAUSED)
        (waiting,) = (await run.view()).waiting
        assert waiting.kind == "model_unauthorised"
        asker.client.api_key = provider.key
        await run.resume()
        assert (await run.result())[-1]["content"] == "Fine."


async def test_a_broken_connection_is_a_model_that_is_not_available() -> None:
    cut = Reply(LONG, fault=Fault(cut_after_tokens=5, times=1))
    async with Provider([cut]) as provider, Runtime("memory:") as runtime:
        run = await runtime.start(asking(Asker(provider)), "Greet.")
        await run.result()
        records = [record.event for record in await runtime.journal.read(run.id)]

    failed = next(event for event in records if isinstance(event, CallFinished))
    assert failed.error
    assert failed.error.startswith("model_unavailable: openai:gpt-5 could not be reached")


async def test_secrets_and_watchers_and_caps_hold_for_it() -> None:
    """D9 D10 D25: neither the journal nor the program sees what is a secret."""
    replies = [Reply("The key is hunter2hunter2."), Reply("I am stuck here now. " * 40), Reply("Done.")]
    async with Provider(replies) as provider, Runtime("memory:", secrets=Secrets(["hunter2hunter2"])) as runtime:
        run = await runtime.start(asking(Asker(provider)), "Tell.")
        result = await run.result()
        text = repr(await runtime.journal.read(run.id))
        assert "hunter2" not in repr(result)
        assert "hunter2" not in text

        run = await runtime.start(asking(Asker(provider), watchers=[Loops()]), "Tell.")
        await until_status(run, Status.PAUSED)
        assert [one.kind for one in (await run.view()).waiting] == ["flagged"]
        await run.resume("Go on.")
        await run.result()

        run = await runtime.start(asking(Asker(provider), turns=3, stop_when=Turns(2)), "Tell.")
        await until_status(run, Status.PAUSED)
        assert [one.kind for one in (await run.view()).waiting] == ["cap"]
        await run.cancel()

        unpriced = asking(Asker(provider), name="mine:made-up", stop_when=Cost(usd=1))
        run = await runtime.start(unpriced, "Tell.")
        await until_status(run, Status.PAUSED)
        await run.cancel()


@pytest.mark.parametrize(
    ("items", "says"),
    [
        (["text"], "ended without"),
        ([WholeAnswer("a"), "more"], "went on after"),
        ([7], "yielded int"),
        ([WholeAnswer(object())], "JSON"),
    ],
)
async def test_a_source_that_does_not_keep_to_its_part_fails_with_what_to_write(items: list[Any], says: str) -> None:
    async def source(asked: Asked) -> AsyncIterator[Any]:
        for item in items:
            yield item

    @agent
    async def program(ctx: Context, goal: str) -> Any:
        return await ctx.answer(source, name="mine:x")

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Ask.")
        with pytest.raises(RunFailed, match=says):
            await run.result()


async def test_a_source_that_does_not_stream_just_returns_the_whole() -> None:
    async def source(asked: Asked) -> WholeAnswer:
        return WholeAnswer("All at once.", Usage(input_tokens=3, output_tokens=4))

    @agent
    async def program(ctx: Context, goal: str) -> Any:
        return (await ctx.answer(source, name="openai:gpt-5")).value

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Ask.")
        assert await run.result() == "All at once."
        assert (await run.view()).usage.input_tokens == 3


@pytest.mark.parametrize(
    "value",
    [
        {"text": LONG, "parts": [{"content": LONG[10:500]}, {"content": "short"}], "none": None},
        {"text": LONG, "said": [1, 2]},
        LONG,
    ],
)
async def test_what_was_said_is_recorded_once_and_comes_back_as_it_was(value: Any, tmp_path: Any) -> None:
    """D29: also in a new process, and where a value looks as if it were a reference."""

    @agent(name="once")
    async def once(ctx: Context, goal: str) -> Any:
        async def source(asked: Asked) -> AsyncIterator[Any]:
            yield LONG
            yield WholeAnswer(value)

        answer = await ctx.answer(source, name="own:model")
        await ctx.ask_person("Go on?")
        return answer.value

    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with Runtime(store, agents=[once]) as runtime:
        run = await runtime.start(once, "Go.")
        await until_status(run, Status.PAUSED)
        records = await runtime.journal.read(run.id)
    (recorded,) = [r.body for r in records if isinstance(r.event, CallFinished)]
    async with Runtime(store, agents=[once]) as runtime:
        run = await runtime.get(run.id)
        await run.resume("Yes.")

        assert await run.result() == value

    if not isinstance(value, dict) or "said" not in value:
        assert recorded.count(b"word399") == 1
