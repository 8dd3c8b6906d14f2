"""An agent's file is edited while its run is paused: the run goes on with the new file, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.agent_tools import lines
from tests.support.patience import PATIENCE_SECONDS

FIRST = '''
import asyncio, os, sys
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.support.agent_tools import note, make_draft

LOG, STORE = sys.argv[1:3]

@tool
async def send() -> str:
    """Send it, once it may."""
    note(LOG, "sending")
    while not os.path.exists(LOG + ".go"):
        await asyncio.sleep(0.01)
    note(LOG, "sent")
    return "sent"

agent = Agent(
    "churn",
    model=ScriptedModel([
        Turn("A draft.", calls=[("make_draft", {"log": LOG})]),
        Turn("Send.", calls=[("send", {})]),
        "Done.",
    ]),
    instructions="Find out who will churn.",
    tools=[make_draft, send],
)

async def main():
    async with Runtime(STORE, agents=[agent]) as runtime:
        rows = await runtime.runs()
        run = await runtime.get(rows[0].id) if rows else await runtime.start(agent, "Go.")
        if not rows:
            while "sending" not in open(LOG).read():
                await asyncio.sleep(0.01)
            pausing = asyncio.create_task(run.pause(wait=60))
            while (await run.state()).status != "pausing":
                await asyncio.sleep(0.01)
            open(LOG + ".go", "w").close()
            await pausing
            return
        await run.resume("and be brief")
        print(await run.result(), flush=True)

if __name__ == "__main__":
    open(LOG, "a").close()
    asyncio.run(main())
'''

EDITS = [
    ('instructions="Find out who will churn."', 'instructions="Be brief. Answer in German."'),
    ("tools=[make_draft, send]", "tools=[count]"),
    ("agent = Agent(", '@tool\nasync def count(n: int) -> int:\n    """Count."""\n    return n\n\nagent = Agent('),
    ('"Done.",\n    ])', '"Fertig.",\n    ], name="another-model")'),
]


def play(script: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_run_whose_file_was_edited_while_it_was_paused_goes_on_without_diverging(tmp_path: Path) -> None:
    """D29 D30: instructions, tools and model were changed; what was done is not done again."""
    script, log, store = tmp_path / "churn.py", str(tmp_path / "log"), f"sqlite:///{tmp_path}/runs.db"
    script.write_text(FIRST)
    play(script, log, store)
    assert lines(log) == ["draft", "sending", "sent"]

    edited = FIRST
    for old, new in EDITS:
        assert old in edited
        edited = edited.replace(old, new)
    script.write_text(edited)

    assert play(script, log, store) == "Fertig."
    assert lines(log) == ["draft", "sending", "sent"]


def test_a_program_that_is_told_to_terminate_pauses_its_runs_and_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """D29: an ordinary SIGINT, as a deployment sends it, loses nothing."""
    script, log, store = tmp_path / "churn.py", str(tmp_path / "log"), f"sqlite:///{tmp_path}/runs.db"
    waits = FIRST.replace("pausing = asyncio.create_task(run.pause(wait=60))", "await run.result()\n            return")
    waits = waits.replace('await run.resume("and be brief")', "pass")
    script.write_text(waits)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, str(script), log, store], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while "sending" not in lines(log):
            assert time.monotonic() < give_up
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        Path(f"{log}.go").touch()
        process.wait(PATIENCE_SECONDS)
    finally:
        process.kill()
        process.communicate()

    assert play(script, log, store) == "Done."
    assert lines(log) == ["draft", "sending", "sent"]
