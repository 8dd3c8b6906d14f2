"""The provider as a program of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from checkrein.errors import MisuseError
from checkrein.testing.provider import Fault, ProviderProcess, Reply
from tests.testing.raw import line, request

pytestmark = pytest.mark.anyio


async def test_it_serves_both_wires_and_tells_its_log(openai, anthropic):
    async with ProviderProcess([Reply("Hello."), Reply("Good bye.", calls=[("wave", {"hand": "left"})])]) as provider:
        said = await openai(provider).chat.completions.create(
            model="gpt-5", messages=[{"role": "user", "content": "Hello?"}]
        )
        answer = await anthropic(provider).messages.create(
            model="claude-haiku-4-5", max_tokens=100, messages=[{"role": "user", "content": "And?"}]
        )
        log = await provider.log()

    assert said.choices[0].message.content == "Hello."
    assert answer.content[1].input == {"hand": "left"}
    assert [(one.wire, one.how) for one in log] == [("openai", "completed"), ("anthropic", "completed")]
    assert log[1].body["messages"][0]["content"] == "And?"


def test_it_brings_no_package_along_that_checkrein_does_not_need():
    program = (
        "import sys, checkrein.testing.provider; print(*{'openai', 'anthropic', 'httpx2', 'aiohttp'} & {*sys.modules})"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


async def test_its_clock_is_ours():
    async with ProviderProcess([Reply(["tok "] * 100, tokens_per_second=20)]) as provider:
        before = time.monotonic()
        async with line(provider.address.port) as client:
            client.send(request())
            await client.see(b"tok")
            left = time.monotonic()
        (played,) = await provider.until(lambda log: log[0].how == "disconnected")

    assert played.disconnected_at is not None
    assert before < played.at < played.token_times[0] < left < played.disconnected_at + 0.001


async def test_its_log_can_be_cleared_and_its_scenario_changed():
    async with ProviderProcess(Reply("one")) as provider, line(provider.address.port) as client:
        client.send(request())
        await client.see(b"[DONE]")
        await provider.play([Reply("two", fault=Fault(cut_after_tokens=1, cut="close"))])
        await provider.clear()
        client.send(request())
        await client.rest()
        (played,) = await provider.log(bodies=False)

    assert b'"content":"two"' in client.seen
    assert (played.how, played.body) == ("fault", None)


async def test_by_turn_the_history_tells_the_reply(openai):
    async with ProviderProcess([Reply("first"), Reply("second")], by_turn=True, models=["mine"]) as provider:
        user, done = {"role": "user", "content": "go on"}, {"role": "assistant", "content": "done"}
        answer = await openai(provider).chat.completions.create(model="mine", messages=[user, done, user])

    assert answer.choices[0].message.content == "second"


async def test_a_scenario_that_it_cannot_play_is_refused():
    async with ProviderProcess(Reply("one")) as provider:
        with pytest.raises(MisuseError, match="at least one Reply"):
            await provider.play([])


async def test_it_ends_with_whoever_started_it():
    async with ProviderProcess(Reply("one")) as provider:
        process = psutil.Process(provider.pid)
        assert process.is_running()

    assert not process.is_running()
    with pytest.raises(MisuseError, match="inside `async with`"):
        _ = provider.openai_url


async def test_by_hand_it_prints_its_address_and_serves_until_it_is_told_to_end(tmp_path: Path):
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps([{"text": "Hello.", "tokens_per_second": 100}]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "checkrein.testing.provider", "--port", "0", "--scenario", str(scenario)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        address = json.loads(await process.stdout.readline())
        async with line(address["port"]) as client:
            client.send(request(key=address["key"]))
            await client.see(b"Hello.")
            client.send(request(b"", "/_log", "GET"))
            assert json.loads((await client.see(b'"how"')).rpartition(b"\r\n")[2])[0]["model"] == "gpt-5"
        assert address["openai_url"] == address["anthropic_url"] + "/v1"
    finally:
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("[", "cannot be used"),
        ('[{"txt": "Hello."}]', "unknown field `txt`"),
        ('[{"fault": {}}]', "A Fault is of one kind"),
    ],
)
def test_a_scenario_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, words: str):
    scenario = tmp_path / "scenario.json"
    if content is not None:
        scenario.write_text(content)

    done = subprocess.run(
        [sys.executable, "-m", "checkrein.testing.provider", "--scenario", scenario], capture_output=True, text=True
    )

    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
