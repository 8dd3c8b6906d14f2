"""Text reaches whoever reads while it is being said, although it is kept lazily and said in another process."""

from __future__ import annotations

import os
import signal
from statistics import median

from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.support.patience import within

SOON_SECONDS = 0.5
"""It takes some hundredths of a second; through the journal alone it would take longer than a fifth of one."""


def test_text_is_read_the_moment_it_is_said(place: Place) -> None:
    """D8"""
    server = place.serve()
    run = server.client.start("clock")
    reading = server.client.read(f"/api/runs/{run}/live")

    until(lambda: sum(frame.event == "call.chunk" for frame in reading.frames) > 40)

    chunks = [frame for frame in reading.frames if frame.event == "call.chunk"][1:]  # the first one is what had been
    late = [frame.at - float(frame.data["text"].split()[-1]) for frame in chunks]
    assert median(late) < within(SOON_SECONDS), late
    reading.close()


def test_a_driver_does_not_wait_for_a_front_that_does_not_read(place: Place) -> None:
    """And what was dropped meanwhile is read from the journal: nobody misses a word."""
    server = place.serve()
    run = server.client.start("speaker")
    place.shell.saw("first")

    os.kill(server.pid, signal.SIGSTOP)
    try:
        place.shell.saw("second")
    finally:
        os.kill(server.pid, signal.SIGCONT)

    until(lambda: server.client.status(run) == "completed")
    said = [call["text"] for call in server.client.view(run)["calls"] if call["kind"] == "model"]
    assert said[1].startswith("word1 word2 ")
    assert said[1].endswith(" word399")
