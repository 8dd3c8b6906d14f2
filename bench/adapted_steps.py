"""What it costs that an agent of another framework is durable and can be stopped: against the same agent, run plainly.

A step is a request to a provider in a process of its own, and the call of an async tool that does nothing. Both sides
have the same agent object, the same client and the same event loop, and take turns with whole runs. The framework asks
without streaming where it is left alone; under Checkrein each answer is streamed, because somebody may watch.

The store is that of one run of a hundred requests, against the text that was new in it: what the goal, the model and
the tools said, which is of mixed lengths, as it is in life. What a framework sends again with every request is not new.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from statistics import median
from typing import Any, Final, NamedTuple

from openai import AsyncOpenAI

from bench.actors import CAPS
from bench.harness import MILLI, Benchmark, Measure, Room, Rounds, Target, left_out
from checkrein import Runtime
from checkrein.adapters.bridge import AdaptedAgent, Rules
from checkrein.errors import MisuseError
from checkrein.testing.provider.scenario import Reply
from checkrein.testing.provider.server import ProviderProcess

AGAINST_PLAIN: Final = Target("at most", 1.5)
STORE: Final = Target("at most", 2.0)
STEPS: Final = 40
REQUESTS: Final = 100
MODEL: Final = "gpt-4o"
GOAL: Final = "Go on until you are done."
QUICK: Final = [*[Reply("Next.", calls=[("nothing", {"word": "next"})])] * STEPS, Reply("Done.")]
SAID: Final = "The account has two open invoices, and the older one is overdue since March. " * 20
FOUND: Final = "Invoice 2291, 14 March, 1,250.00 EUR, open; reminder sent on 2 April, no answer. " * 100


def said(number: int) -> str:
    """What the model says with one request: 200 to 1,340 characters."""
    return SAID[: 200 + number * 379 % 1141]


def found(number: int) -> str:
    """What the tool brings: 400 to 7,600 characters, as files, rows and pages do."""
    return FOUND[: 400 + number * 2473 % 7201]


TALK: Final = [
    *(Reply(said(n), calls=[("looks", {"number": n})]) for n in range(REQUESTS - 1)),
    Reply(said(REQUESTS - 1)),
]


async def nothing(word: str) -> str:
    """Do nothing."""
    return word


async def looks(number: int) -> str:
    """Bring what is known."""
    return found(number)


class Pair(NamedTuple):
    """An agent as its framework runs it, and as Checkrein does."""

    plain: Callable[[], Awaitable[str]]
    adapted: AdaptedAgent


def pydantic_ai(client: AsyncOpenAI) -> Pair:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    from checkrein.adapters.pydantic_ai import interruptible

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, name="pydantic_ai", tools=[nothing, looks])

    async def plain() -> str:
        return (await agent.run(GOAL, usage_limits=UsageLimits(request_limit=None))).output

    return Pair(plain, interruptible(agent, stop_when=CAPS, tools=RULES))


def openai_agents(client: AsyncOpenAI) -> Pair:
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

    from checkrein.adapters.openai_agents import interruptible

    model = OpenAIChatCompletionsModel(MODEL, client)
    agent = Agent(name="openai_agents", model=model, tools=[function_tool(nothing), function_tool(looks)])

    async def plain() -> str:
        done = await Runner.run(agent, GOAL, max_turns=None, run_config=RunConfig(tracing_disabled=True))
        return str(done.final_output)

    return Pair(plain, interruptible(agent, stop_when=CAPS, tools=RULES))


def langgraph(client: AsyncOpenAI) -> Pair:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    from checkrein.adapters.langgraph import Reins, interruptible

    model = ChatOpenAI(
        model=MODEL, api_key=lambda: client.api_key, async_client=client.chat.completions, root_async_client=client
    )
    tools: Sequence[Any] = [nothing, looks]
    alone: Any = create_agent(model, tools, name="langgraph")
    graph = create_agent(model, tools, name="langgraph", middleware=[Reins()])

    async def plain() -> str:
        state = await alone.ainvoke({"messages": [("user", GOAL)]}, {"recursion_limit": 10_000})
        return str(state["messages"][-1].text)

    return Pair(plain, interruptible(graph, stop_when=CAPS, tools=RULES))


RULES: Final = {"nothing": Rules(effect="none"), "looks": Rules(effect="none")}
FRAMEWORKS: Final = {"Pydantic AI": pydantic_ai, "OpenAI Agents": openai_agents, "LangGraph": langgraph}


async def measure(room: Room) -> list[Measure]:
    os.environ["LANGSMITH_TRACING"] = "false"
    measures: list[Measure] = []
    for framework, make in FRAMEWORKS.items():
        async with AsyncExitStack() as stack:
            quick = await stack.enter_async_context(ProviderProcess(QUICK, by_turn=True))
            talk = await stack.enter_async_context(ProviderProcess(TALK, by_turn=True))
            try:
                measures += await _steps(room, framework, make, quick)
                measures.append(await _store(room, framework, make, talk))
            except MisuseError as why:
                measures.append(left_out(f"a step under Checkrein, against {framework} alone", "×", why.message))
    return measures


def _client(provider: ProviderProcess) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=provider.openai_url, api_key=provider.key)


async def _steps(
    room: Room, framework: str, make: Callable[[AsyncOpenAI], Pair], provider: ProviderProcess
) -> list[Measure]:
    """Whole runs of both sides in turns."""
    used: dict[str, list[float]] = {"plain": [], "run": []}
    async with _client(provider) as client, Runtime(room.address(f"{make.__name__}-steps")) as runtime:
        pair = make(client)

        async def whole() -> str:
            return str(await (await runtime.start(pair.adapted, GOAL)).result())

        def side(name: str, go: Callable[[], Awaitable[str]]) -> Callable[[], Awaitable[Sequence[float]]]:
            async def turn() -> Sequence[float]:
                began, before = time.perf_counter(), time.process_time()
                assert await go() == "Done."
                used[name].append(time.process_time() - before)
                return [time.perf_counter() - began]

            return turn

        rounds = Rounds(plain=side("plain", pair.plain), run=side("run", whole))
        await rounds.warm_up(1)
        used["plain"].clear()
        used["run"].clear()
        await rounds.run(room.count(10, 3))
    what = f"a step under Checkrein, against {framework} alone"
    return [
        rounds.ratio(what, "run", "plain", AGAINST_PLAIN),
        *(
            Measure(
                what=f"a step of {framework}{who}",
                value=rounds.median(name) / STEPS * MILLI,
                unit="ms",
                note=f"processor time {median(used[name]) / STEPS * MILLI:.2f} ms",
            )
            for name, who in (("plain", " alone"), ("run", " under Checkrein"))
        ),
    ]


async def _store(room: Room, framework: str, make: Callable[[AsyncOpenAI], Pair], provider: ProviderProcess) -> Measure:
    """What a store holds after one run, with nothing left in SQLite's log, against an empty one."""
    path, empty = room.folder / f"{make.__name__}.db", room.folder / f"{make.__name__}-empty.db"
    async with Runtime(f"sqlite:///{empty}"):
        pass
    async with _client(provider) as client, Runtime(f"sqlite:///{path}") as runtime:
        assert await (await runtime.start(make(client).adapted, GOAL)).result() == said(REQUESTS - 1)
    new = len(GOAL) + sum(len(said(n)) for n in range(REQUESTS)) + sum(len(found(n)) for n in range(REQUESTS - 1))
    grown = _size(path) - _size(empty)
    return Measure(
        what=f"the store of {REQUESTS} requests of {framework}, against what was new",
        value=grown / new,
        unit="×",
        target=STORE,
        note=f"{grown / 1000:.0f} kB for {new / 1000:.0f} kB",
    )


def _size(path: Any) -> int:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "nobody else has it open"
    return int(path.stat().st_size)


BENCHMARK: Final = Benchmark("adapted_steps", f"runs of {STEPS} steps of other frameworks, against themselves", measure)
