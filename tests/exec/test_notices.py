"""What is said about a program beside it: that it goes round the gateway, that gateways are chained, that a request
cannot be read, that somebody else has tried the address. On the page, and in the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from checkrein.exec import program
from checkrein.testing.provider import Provider
from tests.cli.shell import Shell, until

pytestmark = pytest.mark.anyio

POST = """
import http.client, os, sys
from urllib.parse import urlsplit

address = urlsplit(os.environ["OPENAI_BASE_URL"])

def post(path, body, **headers):
    connection = http.client.HTTPConnection(address.hostname, address.port)
    key = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    connection.request("POST", path, body, key | headers)
    return connection.getresponse().status
"""
UNREADABLE = POST + "\nprint(post(address.path + '/chat/completions', b'no JSON'), flush=True)"
STRANGER = POST + "\nfor _ in range(2): print(post('/other/openai/v1/chat/completions', b'{}'), flush=True)"
WAITS = """
import os, time
open(os.environ["WITNESS"], "w").write(os.environ["OPENAI_BASE_URL"])
while not os.path.exists(os.environ["WITNESS"] + ".go"): time.sleep(0.02)
"""
QUICK = "import checkrein.exec.program as p; p.BYPASS_SECONDS = 0.2; from checkrein.cli import main; main()"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider("Fine.") as provider:
        yield provider


def noted(shell: Shell) -> list[dict[str, Any]]:
    """What the page shows: the flags of the run."""
    lines = [json.loads(line) for line in shell.say("export", "last").out.splitlines()]
    return [one["event"] for one in lines if one.get("event", {}).get("type") == "watcher.flagged"]


async def ran(shell: Shell, provider: Provider, script: str, **variables: str) -> tuple[str, list[dict[str, Any]]]:
    given = {"OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": provider.key, **variables}
    done = await asyncio.to_thread(shell.do, "exec", "--", sys.executable, "-c", script, **given)
    assert done.code == 0, done.err
    return done.out + done.err, await asyncio.to_thread(noted, shell)


async def test_a_request_that_cannot_be_read_is_passed_on_and_said(shell: Shell, provider: Provider) -> None:
    text, flags = await ran(shell, provider, UNREADABLE)

    assert "400" in text, "what the provider says of it"
    assert len(provider.log) == 1
    assert [flag["id"] for flag in flags] == ["unreadable"]
    assert "cannot be read" in text


async def test_another_secret_finds_nothing_and_is_noted_once(shell: Shell, provider: Provider) -> None:
    text, flags = await ran(shell, provider, STRANGER)

    assert text.count("404") >= 2
    assert provider.log == []
    assert [flag["id"] for flag in flags] == ["stranger"]


async def test_chained_gateways_are_said_and_both_pass_the_request(shell: Shell, provider: Provider) -> None:
    """The inner program runs under two: its request reaches the provider once, through both."""
    inner = [sys.executable, "-P", "-c", "from checkrein.cli import main; main()", "exec", "--store", "inner.db"]
    ask = POST + (
        '\nbody = b\'{"model": "gpt-5", "messages": [{"role": "user", "content": "Hi?"}]}\''
        "\nprint(post(address.path + '/chat/completions', body), flush=True)"
    )
    script = f"import subprocess; subprocess.run({[*inner, '--', sys.executable, '-c', ask]!r}, check=True)"

    text, flags = await ran(shell, provider, script)

    assert "200" in text
    assert len(provider.log) == 1
    assert flags == [], "the outer one goes to the provider"
    assert "another gateway of Checkrein" in text


async def test_the_terminal_and_the_page_say_that_it_may_go_round_the_gateway(shell: Shell) -> None:
    process = shell.start_program(QUICK, "exec", "--", sys.executable, "-c", WAITS)

    process.until("may go round it")
    (shell.folder / "log.go").touch()

    assert process.wait() == 0
    assert [flag["id"] for flag in await asyncio.to_thread(noted, shell)] == ["bypass"]
    assert program.BYPASS_SECONDS == 10.0


async def test_nothing_is_said_where_it_has_asked_or_is_sealed(shell: Shell) -> None:
    process = shell.start_program(QUICK, "exec", "--sealed", "--", sys.executable, "-c", WAITS)
    until(shell.log.exists)
    (shell.folder / "log.go").touch()

    assert process.wait() == 0
    assert await asyncio.to_thread(noted, shell) == []
