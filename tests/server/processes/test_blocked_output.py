"""Output that nobody reads: a full pipe keeps neither the front from a verb nor a driver from its runs."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from checkrein import logs
from tests.cli.shell import PROGRAM, until
from tests.server.processes.client import Client
from tests.server.processes.serving import Place
from tests.server.processes.test_early import ports_of
from tests.support.patience import PATIENCE_SECONDS

NOISY = """
from checkrein.models import Turn
@tool
async def shout() -> str:
    '''Print more than a pipe holds, in the driver itself, and more than is kept for a reader.'''
    for number in range(40_000):
        print("x" * 100)
    note("shouted")
    await asyncio.sleep(300)
    return "shouted"

shouter = Agent("shouter", model=turns(Turn("I shout.", calls=[("shout", {})]), "Done."), tools=[shout])
"""


def test_a_pipe_that_nobody_reads_blocks_neither_verbs_nor_drivers(place: Place) -> None:
    """S3 P6: `| less`, Ctrl-S, a log collector that hangs."""
    place.file.write_text(place.file.read_text() + NOISY)
    read, write = os.pipe()
    process = subprocess.Popen(
        [*PROGRAM, "serve", "crew.py", "--port", "0", "--log-level", "debug"],
        cwd=place.shell.folder,
        env=place.shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=write,
        start_new_session=True,
    )
    try:
        until(lambda: ports_of(process.pid))
        client = Client(ports_of(process.pid)[0])
        client.start("shouter")
        place.shell.saw("shouted")
        until(lambda: is_full(write), lambda: "the pipe has room")

        driver = int(next(line for line in place.shell.log.read_text().splitlines() if "shouted" in line).split()[1])
        os.kill(driver, signal.SIGKILL)  # about which the front has something to say
        until(lambda: client.get("/healthz")["drivers"] == [{"number": 1, "phase": "ready", "restarts": 1}])
        run = client.start("talker")
        until(lambda: client.status(run) == "running")
        cancelled = client.verb(run, "cancel", wait=30)
        assert (cancelled.status, cancelled.body["status"]) == (200, "cancelled")
        place.let_go()
        beside = client.start("worker")
        until(lambda: client.status(beside) == "completed")

        os.close(write)
        write = -1
        text: list[str] = []
        reading = threading.Thread(target=lambda: text.append(all_of(read)))
        reading.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        reading.join(PATIENCE_SECONDS)
        assert "Driver 1 was ended by SIGKILL." in text[0], "it is said once somebody reads again"
    finally:
        process.kill()
        process.wait()
        os.close(read)
        if write >= 0:
            os.close(write)


def all_of(read: int) -> str:
    with open(read, errors="replace", closefd=False) as file:
        return file.read()


def is_full(write: int) -> bool:
    return not select.select([], [write], [], 0)[1]


def test_a_writer_never_waits_keeps_the_newest_and_says_how_many_were_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    monkeypatch.setattr(logs, "HELD_LINES", 5)
    with open(write, "w") as stream, open(read) as reader:
        writer = logs.LineWriter(lambda: stream)
        writer.write("a" * 8191)
        until(lambda: is_full(write))
        began = time.monotonic()
        for number in range(100):
            writer.write(f"number {number}")
        assert not writer.flush(0.05), "nobody reads"
        assert time.monotonic() - began < PATIENCE_SECONDS

        lines = [reader.readline() for _ in range(7)]

        assert lines[0] == "a" * 8191 + "\n"
        assert lines[1] == "95 lines before this one were dropped: nobody read them\n"
        assert lines[2:] == [f"number {number}\n" for number in range(95, 100)]
        assert writer.flush(PATIENCE_SECONDS)


def test_a_line_goes_where_its_stream_led_also_when_the_descriptor_has_become_another_file(tmp_path: Path) -> None:
    """A log line in a store would be the end of the store."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    stream = open(write, "w")  # noqa: SIM115
    writer = logs.LineWriter(lambda: stream)
    writer.write("a" * 8191)
    until(lambda: is_full(write))
    writer.write("late")
    stream.close()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    assert other == write, "the number is used again"

    with open(read) as reader:
        assert reader.read() == "a" * 8191 + "\nlate\n"

    assert os.fstat(other).st_size == 0
    os.close(other)
