"""What every adapter promises, with the real framework: the six drills.

The witnesses are the provider, which keeps its own clock, and the log that the tools write.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checkrein import Run, Runtime
from checkrein.core.enums import Status
from checkrein.testing.provider import Provider, Reply, Request
from tests.support.runs import until_status
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

SLOW = Reply(" ".join(f"word{n}" for n in range(500)), tokens_per_second=50)


def use(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply("Working.", calls=calls)


def conversation(request: Request) -> list[dict[str, Any]]:
    """The messages of a request, as OpenAI's wire has them."""
    if request.wire != "gemini":
        return request.messages
    said: list[dict[str, Any]] = []
    for message in request.messages:
        role = "assistant" if message["role"] == "model" else "user"
        for part in message["parts"]:
            if "functionResponse" in part:
                said.append({"role": "tool", "content": part["functionResponse"]["response"].get("result")})
            elif "text" in part:
                said.append({"role": role, "content": part["text"]})
    return said


@asynccontextmanager
async def driven_elsewhere(
    framework: Any, store: str, provider: Provider, log: str, goal: str = "Do it."
) -> AsyncIterator[tuple[Any, str]]:
    """A process of its own that begins a run and drives it, or, without a goal, drives those that there are; and the
    id of the run. What is left of it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.adapters.child",
        framework.__name__,
        store,
        provider.openai_url,
        str(provider.key),
        log,
        goal,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode().strip()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def kill(process: asyncio.subprocess.Process) -> None:
    process.send_signal(signal.SIGKILL)
    await process.wait()


async def taken_up(runtime: Runtime, run: str) -> Run[Any]:
    return await runtime.get(run)


async def test_a_cancel_in_mid_stream_is_seen_by_the_provider(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D2 D3 D12"""
    provider.play([SLOW])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Talk.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        receipt = await run.cancel()

        await provider.until(lambda log: log[0].how == "disconnected")
        assert [(call.name, call.now) for call in receipt.calls] == [(framework.MODEL, "aborted")]
        assert receipt.tokens_after_stop == 0
        assert provider.log[0].tokens_sent < 500
        assert len(provider.log) == 1


async def test_a_cancel_in_a_blocking_tool_kills_it(framework: Any, provider: Provider, witness: Witness) -> None:
    """D2 D4 D26: not one tick after the receipt."""
    provider.play([use(("tick", {"log": witness.log}))])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Tick.")
        await witness.saw("tick")
        receipt = await run.cancel()

        assert await witness.is_quiet()
        assert [(call.name, call.now) for call in receipt.calls] == [("tick", "killed")]


async def test_a_redirect_in_mid_stream_is_in_their_next_request_and_in_all_later_ones(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D21 D38"""
    provider.play([SLOW, use(("note_down", {"log": witness.log, "word": "un"})), Reply("Fini.")])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Talk.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        receipt = await run.redirect("In French.")
        result = await run.result()

    assert result == "Fini."
    assert receipt.delivered
    for request in provider.log[1:]:
        said = [(one["role"], str(one.get("content"))) for one in conversation(request)]
        place = next(n for n, (role, text) in enumerate(said) if role == "user" and "In French." in text)
        assert said[place - 1][0] == "assistant"
        assert said[place - 1][1].startswith("word0")
    assert witness.words() == ["un"]


async def test_paused_in_mid_stream_and_killed_it_goes_on_in_a_new_process_and_repeats_nothing(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D28 D29 D30"""
    provider.play([use(("note_down", {"log": witness.log, "word": "one"})), SLOW, Reply("Done.")])
    async with driven_elsewhere(framework, store, provider, witness.log) as (process, id), Runtime(store) as other:
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 5)
        await (await other.get(id)).pause()
        await provider.until(lambda log: log[1].how == "disconnected")
        await kill(process)

    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await taken_up(runtime, id)
        await run.resume()
        assert await run.result() == "Done."

    assert witness.words() == ["one"]
    assert len(provider.log) == 3


async def test_killed_inside_a_tool_the_call_is_in_doubt_and_not_done_again(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D30"""
    provider.play([use(("slowly", {"log": witness.log, "word": "one"})), Reply("Done.")])
    async with driven_elsewhere(framework, store, provider, witness.log) as (process, id):
        await witness.saw("begin one")
        await kill(process)

    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await taken_up(runtime, id)
        while not (view := await run.view()).doubts:
            await asyncio.sleep(0.05)
        await run.resolve(view.doubts[0].call, "happened", result="did one")
        assert await run.result() == "Done."

    assert witness.words() == ["begin one"]
    assert any("did one" in str(one) for one in provider.log[1].messages)


async def test_three_tools_at_once_a_pause_and_a_kill_and_none_is_done_twice(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D28 D30"""
    words = ("one", "two", "three")
    provider.play([use(*(("slowly", {"log": witness.log, "word": word}) for word in words)), SLOW, Reply("Done.")])
    async with driven_elsewhere(framework, store, provider, witness.log) as (process, id), Runtime(store) as other:
        await witness.saw(*(f"begin {word}" for word in words))
        pausing = asyncio.ensure_future((await other.get(id)).pause(wait=60))
        await until_status(await other.get(id), Status.PAUSING)
        Path(f"{witness.log}.go").touch()
        await pausing
        await kill(process)

    provider.play([Reply("Done.")])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await taken_up(runtime, id)
        await run.resume()
        assert await run.result() == "Done."

    assert sorted(witness.words()) == sorted([f"{when} {word}" for when in ("begin", "end") for word in words])
    results = [str(one["content"]) for one in conversation(provider.log[-1]) if one["role"] == "tool"]
    assert results == [f"did {word}" for word in words], "each call has its own result"
    await until(lambda: True)
