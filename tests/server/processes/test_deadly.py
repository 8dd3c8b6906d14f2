"""Agents that would end the process that drives them. The witnesses are the process table and the tools' own log."""

from __future__ import annotations

import pytest

from tests.cli.shell import until
from tests.server.processes.serving import Place

AGENTS = """
import asyncio, os, sys, time
from checkrein import agent

def note(word):
    descriptor = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\\n".encode())
    os.close(descriptor)

async def draft():
    note("draft")

def discard(call):
    note("discard")

async def words():
    yield "word"

async def work():
    note("work")
    while not os.path.exists(os.environ["WITNESS"] + ".go"):
        await asyncio.sleep(0.01)
    note("worked")

async def exit():
    sys.exit(5)

async def exit_later():
    asyncio.get_running_loop().call_later(0.05, sys.exit, 6)
    await asyncio.sleep(0.2)

@agent
async def innocent(ctx, goal):
    await ctx.call(work)

@agent
async def exits(ctx, goal):
    sys.exit(4)

@agent
async def exits_beside(ctx, goal):
    await asyncio.gather(exit(), asyncio.sleep(600))

@agent
async def exits_in_a_timer(ctx, goal):
    await ctx.call(exit_later)

@agent
async def dies(ctx, goal):
    await ctx.call(draft, undo=discard)
    await ctx.stream(words)
    os._exit(9)
"""


@pytest.fixture
def deadly(place: Place) -> Place:
    place.file.write_text(AGENTS)
    return place


def test_programs_that_exit_fail_alone_and_one_that_dies_is_set_aside(deadly: Place) -> None:
    server = deadly.serve()
    client = server.client
    first = server.driver()
    beside = client.start("innocent")
    deadly.shell.saw("work")
    ends = {name: client.start(name) for name in ("exits", "exits_beside", "exits_in_a_timer")}
    until(lambda: [client.status(ends[name]) for name in ("exits", "exits_beside")] == ["failed"] * 2)
    until(lambda: client.status(ends["exits_in_a_timer"]) == "completed")
    assert server.driver() == first, "the driver lives"
    (deadly.shell.log.parent / (deadly.shell.log.name + ".go")).touch()
    until(lambda: client.status(beside) == "completed")
    assert deadly.shell.words().count("work") == 1

    run = client.start("dies")
    until(lambda: client.status(run) == "paused", lambda: f"{client.view(run)}")

    assert [one["kind"] for one in client.view(run)["waiting"]] == ["driver_died"]
    assert server.driver() != first
    other = client.start("innocent")
    until(lambda: client.status(other) == "completed")

    server.end()
    again = deadly.serve()
    again.client.verb(run, "cancel", wait=30)
    until(lambda: again.client.status(run) == "cancelled", lambda: f"{again.client.view(run)}")
    assert deadly.shell.words().count("draft") == 1
    assert deadly.shell.words().count("discard") == 1
