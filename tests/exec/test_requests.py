"""Programs under `checkrein exec` that ask models, on the vendors' own packages: the provider's log is the witness."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein.testing.provider import Provider, Reply, runs_command
from tests.cli.shell import Done, Shell, Started, until
from tests.support.witness import is_alive

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
TICKS = """
echo "$(date +%s) $$ $0" >> $WITNESS
while [ ! -e $WITNESS.go ]; do echo "$(date +%s) $$ tick" >> $WITNESS; sleep 0.05; done
"""
WITH_TOOLS = """
import json, os, subprocess, sys
from openai import OpenAI
helper = subprocess.Popen(["sh", "-c", os.environ["TICKS"], "helper"])
tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {
    "command": {"type": "string"}}}}}]
said, client = [{"role": "user", "content": "Go."}], OpenAI(max_retries=0)
while True:
    answer = client.chat.completions.create(model="gpt-5", messages=said, tools=tools).choices[0].message
    said.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        code = subprocess.run(["sh", "-c", os.environ["TICKS"], "command"]).returncode
        said.append({"role": "tool", "tool_call_id": call.id, "content": f"exit code {code}"})
sys.exit(0 if helper.poll() is None else 9)
"""
"""It has a helper that it starts by itself, and commands that its model asks for; both tick until they may end."""
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
    return await asyncio.to_thread(shell.say, *arguments)


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


def start_with_tools(shell: Shell, provider: Provider) -> Started:
    provider.play(runs_command("tick", "Fine."))
    variables = {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": KEY, "TICKS": TICKS}
    return shell.start("exec", "--", sys.executable, "-c", WITH_TOOLS, **variables)


async def test_redirected_in_a_command_the_command_ends_and_nothing_else(shell: Shell, provider: Provider) -> None:
    """D21 D22: what was begun since the answer that asked for it; the program goes on and tells the model both."""
    started = start_with_tools(shell, provider)
    await asyncio.to_thread(shell.saw, "command")

    assert (await do(shell, "redirect", "last", "Only Q3, please.")).code == 0

    assert await asyncio.to_thread(started.wait) == 0, "its helper was alive to the end"
    assert not is_alive(shell.who_wrote("command"))
    assert [message["role"] for message in provider.log[1].messages] == ["user", "assistant", "tool", "user"]
    assert provider.log[1].messages[-2]["content"] == "exit code -15"
    assert provider.log[1].messages[-1]["content"] == "Only Q3, please."


async def test_redirected_for_the_next_step_the_command_finishes_first(shell: Shell, provider: Provider) -> None:
    """D21 D22"""
    started = start_with_tools(shell, provider)
    await asyncio.to_thread(shell.saw, "command")

    await do(shell, "redirect", "last", "Only Q3, please.", "--when", "next_step", "--wait", "0")
    command = shell.who_wrote("command")
    seen = len(ticks_of(shell, command))
    await asyncio.to_thread(until, lambda: len(ticks_of(shell, command)) > seen + 1)
    (shell.folder / "log.go").touch()

    await asyncio.to_thread(started.wait)
    assert [one["content"] for one in provider.log[1].messages[-2:]] == ["exit code 0", "Only Q3, please."]


def ticks_of(shell: Shell, process: int) -> list[str]:
    return [line for line in shell.log.read_text().splitlines() if line.endswith(f" {process} tick")]


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_another_user_of_the_machine_finds_the_secret_nowhere(shell: Shell, provider: Provider) -> None:
    """Of a program that is told by its arguments. Without the secret the gateway answers 404."""
    codex = shell.folder / "codex"
    codex.write_text(f"#!/bin/sh\nprintf %s \"$CHECKREIN_GATEWAY_PASS\" > said\nsh -c '{TICKS}' ticker\n")
    codex.chmod(0o755)
    started = shell.start("exec", "--", "./codex", OPENAI_API_KEY=KEY)
    await asyncio.to_thread(shell.saw, "tick")
    secret = said(shell)
    looks = ["grep", "-slF", "-f", "-", *(f"/proc/{name}/{file}" for name in pids() for file in ("cmdline", "environ"))]

    mine = subprocess.run(looks, input=secret, capture_output=True, text=True, check=False)
    theirs = subprocess.run(looks, input=secret, capture_output=True, text=True, check=False, user=65534, group=65534)

    assert secret.startswith("checkrein-")
    assert "environ" in mine.stdout
    assert "cmdline" not in mine.stdout
    assert theirs.stdout == ""
    (shell.folder / "log.go").touch()
    await asyncio.to_thread(started.wait)


def pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


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
