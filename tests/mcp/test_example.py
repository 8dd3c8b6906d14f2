"""`examples/mcp_agent.py` on a real wire: the provider and the server are other processes, and so is the agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checkrein.testing.provider import Provider, Reply
from tests.mcp.scene import ROOT
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = pytest.mark.anyio


def start(provider: Provider, folder: Path, goal: str) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "OPENAI_BASE_URL": provider.openai_url,
        "OPENAI_API_KEY": provider.key,
        "NOTES_FILE": str(folder / "notes.json"),
    }
    program = [sys.executable, "-W", "error", f"{ROOT}/examples/mcp_agent.py", goal]
    return subprocess.Popen(program, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def end_of(process: subprocess.Popen[str]) -> str:
    try:
        shown, errors = await asyncio.to_thread(process.communicate, None, PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    return shown


def notes(folder: Path) -> Any:
    file = folder / "notes.json"
    return json.loads(file.read_text()) if file.exists() else None


async def test_the_example_keeps_a_note_and_shows_how_far_it_is(tmp_path: Path) -> None:
    scenario = [
        Reply("Noting.", calls=[("add_note", {"text": "milk is empty"})]),
        Reply(calls=[("proofread", {"seconds_each": 0.01})]),
        Reply("I noted it and read everything."),
    ]
    async with Provider(scenario) as provider:
        shown = await end_of(start(provider, tmp_path, "Note that the milk is empty, then proofread."))

    assert "1 of 1: milk is empty" in shown
    assert "I noted it and read everything." in shown
    assert notes(tmp_path) == {"1": "milk is empty"}


async def test_the_example_takes_back_what_was_noted_when_it_is_cancelled(tmp_path: Path) -> None:
    """D26"""
    scenario = [
        Reply("Noting.", calls=[("add_note", {"text": "milk is empty"})]),
        Reply(calls=[("proofread", {"seconds_each": 60})]),
    ]
    async with Provider(scenario) as provider:
        process = start(provider, tmp_path, "Note that the milk is empty, then proofread.")
        await until(lambda: len(provider.log) == 2 and provider.log[1].how == "completed")

        process.send_signal(signal.SIGINT)
        shown = await end_of(process)

    assert "[effect: add_note is undone]" in shown
    assert notes(tmp_path) == {}
