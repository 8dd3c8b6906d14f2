"""Programs of others under `checkrein exec`: on the clients of the vendors for npm, and `llm` from PyPI.

The provider's log is the witness. The packages are installed once, into a folder beside the environment of the tests.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from checkrein.testing.provider import Provider, Reply
from tests.cli.shell import Done, Shell, Started

pytestmark = pytest.mark.anyio

NPM: Final = ("openai@7.55.0", "@anthropic-ai/sdk@1.9.0")
FOLDER: Final = Path(sys.prefix) / "npm-clients"
KEY: Final = "sk-test-0123456789abcdefghij0123456789"
LONG: Final = " ".join(f"word{n}" for n in range(1, 1000))

CHAT = """
import OpenAI from "openai";
const client = new OpenAI({ maxRetries: 0 });
const messages = [{ role: "user", content: "Question?" }];
for await (const chunk of await client.chat.completions.create({ model: "gpt-5", messages, stream: true }))
    process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
console.log(" END");
"""
RESPONSES = """
import OpenAI from "openai";
const client = new OpenAI({ maxRetries: 0 });
const stream = client.responses.stream({ model: "gpt-5", input: "Question?" });
for await (const event of stream)
    if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
const whole = await stream.finalResponse();
console.log(whole.output_text.startsWith("word1 word2") ? " END" : ` WRONG ${whole.output_text}`);
"""
MESSAGES = """
import Anthropic from "@anthropic-ai/sdk";
const client = new Anthropic({ maxRetries: 0 });
const messages = [{ role: "user", content: "Question?" }];
const stream = client.messages.stream({ model: "claude-sonnet-4-5", max_tokens: 1000, messages });
stream.on("text", (text) => process.stdout.write(text));
const whole = await stream.finalMessage();
console.log(whole.content.length === 1 ? " END" : ` WRONG ${JSON.stringify(whole.content)}`);
"""


@pytest.fixture(scope="module")
def npm() -> Path:
    """A folder with npm's packages of the vendors."""
    found = shutil.which("npm")
    if found is None or shutil.which("node") is None:
        pytest.skip("npm and node are not here: the vendors' clients of npm are not tried")
    if not (FOLDER / "installed").exists():
        install = [found, "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--loglevel=error", *NPM]
        done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install the vendors' clients here: {done.stderr.strip()[-300:]}")
        (FOLDER / "installed").touch()
    return FOLDER


def in_node(name: str, script: str) -> Callable[[pytest.FixtureRequest], list[str]]:
    def command(request: pytest.FixtureRequest) -> list[str]:
        folder: Path = request.getfixturevalue("npm")
        file = folder / f"{name}.mjs"  # where it finds the packages
        file.write_text(script)
        return ["node", str(file)]

    return command


PROGRAMS: Final[dict[str, Callable[[pytest.FixtureRequest], list[str]]]] = {
    "npm openai, chat": in_node("chat", CHAT),
    "npm openai, Responses": in_node("responses", RESPONSES),
    "npm @anthropic-ai/sdk": in_node("messages", MESSAGES),
    "llm": lambda _: [str(Path(sys.executable).parent / "llm"), "-m", "gpt-4o", "Question?"],
}


@pytest.fixture(params=PROGRAMS)
def command(request: pytest.FixtureRequest) -> list[str]:
    return PROGRAMS[request.param](request)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    slow = Reply(LONG, tokens_per_second=20)
    async with Provider([slow, Reply(LONG, tokens_per_second=20), Reply("and-the-rest.")], key=KEY) as provider:
        yield provider


def start(shell: Shell, provider: Provider, command: list[str]) -> Started:
    variables = {
        "OPENAI_BASE_URL": provider.openai_url,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": provider.anthropic_url,
        "ANTHROPIC_API_KEY": KEY,
        "LLM_USER_PATH": str(shell.folder / "llm"),
    }
    return shell.start("exec", "--", *command, **variables)


async def do(shell: Shell, *arguments: str) -> Done:
    return await asyncio.to_thread(shell.do, *arguments)


async def in_mid_answer(provider: Provider, request: int) -> None:
    await provider.until(lambda log: len(log) > request and log[request].tokens_sent >= 5, timeout=90)


async def test_paused_resumed_and_redirected_it_hears_one_continuous_answer(
    shell: Shell, provider: Provider, command: list[str]
) -> None:
    """D1 D20 D21 D22"""
    started = start(shell, provider, command)
    await in_mid_answer(provider, 0)

    assert (await do(shell, "pause", "last")).code == 0
    assert (len(provider.log), provider.log[0].how) == (1, "disconnected")
    assert (await do(shell, "resume", "last")).code == 0
    await in_mid_answer(provider, 1)
    assert (await do(shell, "redirect", "last", "Only Q3, please.")).code == 0

    assert await asyncio.to_thread(started.wait) == 0, started.text
    assert provider.log[1].how == "disconnected"
    assert "word1 word2" in str(provider.log[1].messages[-2])
    assert "Only Q3, please." in str(provider.log[2].messages[-1])
    heard = " ".join(started.text.split())
    assert "word1 word2 word3" in heard
    assert "and-the-rest." in heard
    assert command[0] != "node" or heard.endswith("END")


async def test_cancelled_in_mid_answer_it_hears_no_more_and_is_gone(
    shell: Shell, provider: Provider, command: list[str]
) -> None:
    """D2 D3 D4"""
    started = start(shell, provider, command)
    await in_mid_answer(provider, 0)

    assert (await do(shell, "cancel", "last")).code == 0

    assert (len(provider.log), provider.log[0].how) == (1, "disconnected")
    assert await asyncio.to_thread(started.wait) == 3
    assert "END" not in started.text
