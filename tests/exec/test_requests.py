"""Programs under `checkrein exec` that ask models, on the vendors' own packages: the provider's log is the witness."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein.testing.provider import Provider, Reply
from tests.cli.shell import Done, Shell, Started

pytestmark = pytest.mark.anyio

OPENAI = """
import os, sys
from openai import OpenAI
out = open(os.environ["SAID"], "w")
client = OpenAI(max_retries=0)
for question in sys.argv[1:]:
    ask = {"model": "gpt-5", "messages": [{"role": "user", "content": question}]}
    for chunk in client.chat.completions.create(**ask, stream=True):
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", file=out, flush=True)
print(" END", file=out, flush=True)
"""
ANTHROPIC = """
import os, sys
from anthropic import Anthropic
out = open(os.environ["SAID"], "w")
client = Anthropic(max_retries=0)
for question in sys.argv[1:]:
    ask = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "messages": [{"role": "user", "content": question}]}
    with client.messages.stream(**ask) as stream:
        for text in stream.text_stream:
            print(text, end="", file=out, flush=True)
print(" END", file=out, flush=True)
"""
SCRIPTS = {"openai": OPENAI, "anthropic": ANTHROPIC}
LONG = " ".join(f"word{n}" for n in range(1, 400))
KEY = "sk-test-0123456789abcdefghij0123456789"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([Reply(LONG, tokens_per_second=20), Reply("and the rest.")], key=KEY) as provider:
        yield provider


def start(shell: Shell, provider: Provider, *options: str, package: str = "openai", asks: int = 1) -> Started:
    command = [sys.executable, "-c", SCRIPTS[package], *[f"Question {n}?" for n in range(asks)]]
    variables = {
        "OPENAI_BASE_URL": provider.openai_url,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": provider.anthropic_url,
        "ANTHROPIC_API_KEY": KEY,
        "SAID": str(shell.folder / "said"),
    }
    return shell.start("exec", *options, "--", *command, **variables)


def said(shell: Shell) -> str:
    """What the program has heard."""
    return (shell.folder / "said").read_text()


async def do(shell: Shell, *arguments: str) -> Done:
    return await asyncio.to_thread(shell.do, *arguments)


async def in_mid_answer(provider: Provider) -> None:
    await provider.until(lambda log: bool(log) and log[-1].tokens_sent >= 5, timeout=90)


@pytest.mark.parametrize("package", SCRIPTS)
async def test_paused_in_mid_answer_it_goes_on_with_one_continuous_answer(
    shell: Shell, provider: Provider, package: str
) -> None:
    """D1 D20: the upstream is closed while it is paused; the program never hears of it. Its key is kept nowhere."""
    started = start(shell, provider, package=package)
    await in_mid_answer(provider)

    assert (await do(shell, "pause", "last")).code == 0
    assert provider.log[0].how == "disconnected"
    sent = provider.log[0].tokens_sent
    await asyncio.sleep(0.3)
    assert (len(provider.log), provider.log[0].tokens_sent) == (1, sent)
    assert (await do(shell, "resume", "last")).code == 0

    assert await asyncio.to_thread(started.wait) == 0
    assert said(shell).startswith("word1 word2 word3 word4")
    assert said(shell).endswith("and the rest. END\n")
    assert len(provider.log) == 2
    assert "word1 word2" in str(provider.log[1].messages)
    assert not [file for file in stored(shell) if KEY.encode() in file.read_bytes()]


def stored(shell: Shell) -> list[Path]:
    return [file for file in (shell.folder / ".checkrein").rglob("*") if file.is_file()]


async def test_redirected_in_mid_answer_the_instruction_reaches_the_model(shell: Shell, provider: Provider) -> None:
    """D21 D22: as a message of the user, after what was said by then; the program lives on."""
    started = start(shell, provider)
    await in_mid_answer(provider)

    assert (await do(shell, "redirect", "last", "Only Q3, please.")).code == 0

    assert await asyncio.to_thread(started.wait) == 0
    assert [message["role"] for message in provider.log[1].messages] == ["user", "assistant", "user"]
    assert "Only Q3, please." in str(provider.log[1].messages[-1])


async def test_cancelled_in_mid_answer_nothing_more_is_asked(shell: Shell, provider: Provider) -> None:
    """D2 D3 D4"""
    started = start(shell, provider, asks=2)
    await in_mid_answer(provider)

    assert (await do(shell, "cancel", "last")).code == 0

    assert provider.log[0].how == "disconnected"
    assert await asyncio.to_thread(started.wait) == 3
    assert len(provider.log) == 1
    assert "END" not in said(shell)


async def test_nothing_passes_after_a_kill_9_of_checkrein(shell: Shell, provider: Provider) -> None:
    """D4 D26"""
    started = start(shell, provider, asks=2)
    await in_mid_answer(provider)

    os.kill(started.process.pid, signal.SIGKILL)

    await provider.until(lambda log: log[0].how == "disconnected", timeout=90)
    await asyncio.to_thread(started.wait)
    await asyncio.sleep(0.3)
    assert len(provider.log) == 1
    assert "END" not in said(shell)


async def test_a_cap_holds_the_request_and_asks_and_a_resume_grants_it(shell: Shell, provider: Provider) -> None:
    """D20"""
    provider.play("Short.")
    started = start(shell, provider, "--turns", "1", asks=2)

    await asyncio.to_thread(started.until, "Turns(1)")
    assert len(provider.log) == 1
    assert (await do(shell, "resume", "last")).code == 0

    assert await asyncio.to_thread(started.wait) == 0
    assert len(provider.log) == 2


async def test_sealed_it_still_reaches_the_gateway(shell: Shell, provider: Provider) -> None:
    provider.play("Short.")

    started = start(shell, provider, "--sealed")

    assert await asyncio.to_thread(started.wait) == 0
    assert said(shell) == "Short. END\n"
    assert [request.how for request in provider.log] == ["completed"]
