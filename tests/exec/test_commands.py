"""Programs that run commands because their model asks for them: soft pauses, redirects, caps, and going on afterwards.

The witnesses are the command's own log and the provider's."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein.testing.provider import Provider, Reply, Usage
from tests.cli.shell import Done, Shell, Started, until
from tests.cli.test_exec import TICKS, none_left

pytestmark = pytest.mark.anyio

AGENT = """
import json, os, subprocess, sys
from openai import OpenAI
client = OpenAI(max_retries=0)
messages = [{"role": "user", "content": "Go."}]
tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
server = subprocess.Popen(["sleep", "3600"])
while True:
    answer = client.chat.completions.create(model="gpt-5", messages=messages, tools=tools).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        done = subprocess.run([sys.executable, "-c", json.loads(call.function.arguments)["script"]])
        said = f"exit code {done.returncode}, server lives: {server.poll() is None}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
"""
KEY = "sk-test-0123456789abcdefghij0123456789"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    replies = [
        Reply("I look.", calls=[("bash", {"script": TICKS})], usage=Usage(1_000_000, 1_000_000)),
        Reply("Done."),
    ]
    async with Provider(replies, key=KEY) as provider:
        yield provider


def start(shell: Shell, provider: Provider, *options: str, before: tuple[str, ...] = ()) -> Started:
    variables = {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": KEY}
    return shell.start("exec", *options, "--", sys.executable, "-c", AGENT, before=before, **variables)


async def do(shell: Shell, *arguments: str) -> Done:
    return await asyncio.to_thread(shell.say, *arguments)


async def saw(shell: Shell, word: str) -> None:
    await asyncio.to_thread(shell.saw, word)


async def test_a_soft_pause_lets_the_command_finish_and_holds_the_next_request(
    shell: Shell, provider: Provider
) -> None:
    """D1 D20"""
    started = start(shell, provider, "--pause", "soft")
    await saw(shell, "tick")

    assert (await do(shell, "pause", "last")).code == 0
    before = shell.words().count("tick")
    await asyncio.to_thread(until, lambda: shell.words().count("tick") > before)
    (shell.folder / "log.go").touch()
    # The step is over when the next request has brought the result of the command along.
    await asyncio.to_thread(until, lambda: '"step.finished"' in shell.say("export", "last").out)
    assert shell.words()[-1] == "ended"
    assert len(provider.log) == 1, "its next request is held"
    assert (await do(shell, "resume", "last")).code == 0

    assert await asyncio.to_thread(started.wait) == 0
    assert len(provider.log) == 2


async def test_a_redirect_now_ends_only_what_was_begun_since_the_answer(shell: Shell, provider: Provider) -> None:
    """D21 D22: what the program had started before lives on, and it asks its model again with the instruction."""
    started = start(shell, provider)
    await saw(shell, "tick")

    assert (await do(shell, "redirect", "last", "Only Q3, please.")).code == 0

    await asyncio.to_thread(none_left, shell)
    assert await asyncio.to_thread(started.wait) == 0, started.text
    told = json.dumps(provider.log[1].messages)
    assert "Only Q3, please." in told
    assert "exit code -15, server lives: True" in told


async def test_a_redirect_for_the_next_step_lets_the_command_finish(shell: Shell, provider: Provider) -> None:
    started = start(shell, provider)
    await saw(shell, "tick")

    assert (await do(shell, "redirect", "last", "Only Q3, please.", "--when", "next_step")).code == 0
    before = shell.words().count("tick")
    await asyncio.to_thread(until, lambda: shell.words().count("tick") > before)
    (shell.folder / "log.go").touch()

    assert await asyncio.to_thread(started.wait) == 0, started.text
    told = json.dumps(provider.log[1].messages)
    assert "exit code 0" in told
    assert "Only Q3, please." in told


async def test_a_cap_on_cost_holds_the_next_request_and_asks(shell: Shell, provider: Provider) -> None:
    """D25: and a resume grants the same again."""
    (shell.folder / "log.go").touch()
    started = start(shell, provider, "--cost", "0.01")

    await asyncio.to_thread(started.until, "Cost")
    assert len(provider.log) == 1
    assert (await do(shell, "resume", "last")).code == 0
    assert (await do(shell, "cancel", "last")).code == 0

    assert await asyncio.to_thread(started.wait) == 3


async def test_after_a_crash_it_is_ended_and_in_doubt_as_a_whole_and_no_other_takes_it_up(
    shell: Shell, provider: Provider
) -> None:
    """D4 D26: a later program of the same name leaves it alone."""
    started = start(shell, provider)
    await saw(shell, "tick")

    os.kill(started.process.pid, signal.SIGKILL)
    await asyncio.to_thread(started.wait)
    await asyncio.to_thread(none_left, shell)
    requests = len(provider.log)
    name = Path(sys.executable).name
    other = await asyncio.to_thread(shell.do, "exec", "--name", name, "--", "true")
    rows = (await do(shell, "ps", "--all", "--json")).json

    assert other.code == 0
    assert len(provider.log) == requests
    (crashed,) = [row for row in rows if row["goal"] != "true"]
    paused = await do(shell, "pause", crashed["run"])
    assert "in doubt" in paused.out.lower() or "unknown" in paused.out.lower(), paused.out
    resumed = await do(shell, "resume", crashed["run"])
    assert "checkrein cancel" in resumed.out + resumed.err
    assert "run FILE" not in resumed.out + resumed.err
    assert (await do(shell, "cancel", crashed["run"])).code == 0


CLAUDE = """#!{python}
import os, sys
with open(os.environ["WITNESS"], "a") as log:
    log.write("0 0 " + " ".join(word for word in sys.argv[1:] if not word.endswith("settings.json")) + "\\n")
"""


async def test_it_goes_on_from_a_run_that_has_ended_by_its_own_record(shell: Shell) -> None:
    file = shell.folder / "claude"
    file.write_text(CLAUDE.format(python=sys.executable))
    file.chmod(0o755)

    first = await asyncio.to_thread(shell.do, "exec", "--", "./claude", "-p", "Hello?")
    second = await asyncio.to_thread(shell.do, "exec", "--continue", "last", "--", "-p", "And now?")

    assert (first.code, second.code) == (0, 0), second.err
    assert shell.words() == ["--settings -p Hello?", "--settings --continue -p And now?"]
    rows = (await do(shell, "ps", "--all", "--json")).json
    assert len({row["thread"] for row in rows}) == 1, "in the same thread"


async def test_it_does_not_go_on_from_what_kept_no_record_or_is_not_over(shell: Shell, provider: Provider) -> None:
    assert (await asyncio.to_thread(shell.do, "exec", "--", "true")).code == 0
    for option in (["--continue", "last"], ["--continue=last"]):
        done = await do(shell, "exec", *option)
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert "error[cannot_continue]" in done.err

    started = start(shell, provider)
    await saw(shell, "tick")
    done = await do(shell, "exec", "--continue", "last")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "error[run_unfinished]" in done.err
    assert (await do(shell, "cancel", "last")).code == 0
    await asyncio.to_thread(started.wait)


NO_NAMESPACES = ("unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_net_namespaces && exec "$@"', "sh")


def _can_forbid_namespaces() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NO_NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _can_forbid_namespaces(), reason="namespaces cannot be forbidden here, to see it refused")
async def test_sealed_is_refused_where_namespaces_are_not_allowed(shell: Shell, provider: Provider) -> None:
    """In a user namespace that may have no network namespace below it. Nothing is started."""
    started = start(shell, provider, "--sealed", before=NO_NAMESPACES)

    assert await asyncio.to_thread(started.wait) == 2
    assert "error[not_sealed]" in started.text
    assert len(started.text.splitlines()) == 1
    assert provider.log == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "nobody"], "nobody"),
        (["--upstream", "openai"], "no PROVIDER=URL"),
        (["--upstream", "acme=http://127.0.0.1:1"], "no provider 'acme'"),
        (["--upstream", "openai=nonsense"], "no address"),
        (["--cost", "much"], "number"),
        (["--minutes", "0"], "number"),
        (["--pause", "hard"], "hard"),
        (["--open", "--store", "memory:"], "store that is kept"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence_and_nothing_is_started(
    shell: Shell, arguments: list[str], words: str
) -> None:
    done = shell.say("exec", *arguments, "--", "touch", "begun")

    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not (shell.folder / "begun").exists()


def test_an_address_in_the_environment_that_is_none_is_named(shell: Shell) -> None:
    done = shell.say("exec", "--", "true", OPENAI_BASE_URL="nonsense")

    assert done.code == 2
    assert "OPENAI_BASE_URL" in done.err
