"""The server's own token: drivers look for it though it is not in their environment."""

from __future__ import annotations

import re

import psutil

from tests.cli.shell import until
from tests.server.processes.client import TOKEN as CLIENT_TOKEN
from tests.server.processes.client import Client
from tests.server.processes.serving import Place

TOKEN = "q7Jb2dX0mPzKc5vR9tLw3nYh8sGf1aEu6iOo4kBxZyD"
"""As somebody may have drawn it: nothing about it says what it is."""
HALT_TOKEN = "ckr_Xw3nYh8sGf1aEu6iOo4kBxZyDq7Jb2dX0mPzKc5vR9t"
AGENTS = """
import os
from pathlib import Path

from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn


@tool(effect="none")
def settings() -> str:
    return Path(__file__).with_name(".env").read_text() + str(sorted(os.environ))


MODEL = ScriptedModel([Turn("I look.", calls=[("settings", {})]), lambda request: f"It says {request.messages[-1]}"])
reader = Agent("reader", model=MODEL, tools=[settings])
"""


def test_a_tool_that_reads_the_servers_token_shows_it_to_nobody(place: Place) -> None:
    """The witnesses are the files of the store."""
    place.file.write_text(AGENTS)
    (place.shell.folder / ".env").write_text(f"CHECKREIN_TOKEN={TOKEN}\nCHECKREIN_HALT_TOKEN={HALT_TOKEN}\n")
    place.shell.environment |= {"CHECKREIN_TOKEN": TOKEN, "CHECKREIN_HALT_TOKEN": HALT_TOKEN}
    started = place.shell.start("serve", "crew.py", "--port", "0")
    started.until("Ctrl-C pauses what is at work")
    found = re.search(r"http://127\.0\.0\.1:(\d+)/enter", started.text)
    assert found is not None
    client = Client(int(found[1]), TOKEN)

    run = client.start("reader")
    until(lambda: client.status(run) == "completed")

    (settings,) = [call for call in client.view(run)["calls"] if call["name"] == "settings"]
    told = client.get(f"/api/runs/{run}/calls/{settings['id']}")["result"]
    assert "CHECKREIN_TOKEN=" in told
    assert "'CHECKREIN_TOKEN'" not in told, "it is not in the environment of tools"
    assert "CHECKREIN_HALT_TOKEN=" in told
    assert "'CHECKREIN_HALT_TOKEN'" not in told
    below = psutil.Process(started.process.pid).children(recursive=True)
    assert below
    assert [one for one in below if HALT_TOKEN in one.environ().values()] == [], "no driver has it"
    assert TOKEN not in str(client.view(run))
    assert HALT_TOKEN not in str(client.view(run)) + told
    secrets = (TOKEN.encode(), HALT_TOKEN.encode())
    kept = [one for one in place.shell.folder.rglob("*") if one.is_file() and one.name not in (".env", "server-token")]
    assert any("runs.db" in one.name for one in kept)
    assert [one.name for one in kept if any(secret in one.read_bytes() for secret in secrets)] == []
    assert "does not begin with ckr_" in started.text
    assert TOKEN not in started.text
    assert HALT_TOKEN not in started.text
    started.process.terminate()
    assert started.wait() == 0


def test_only_the_halt_token_resets_at_a_server(place: Place) -> None:
    """D35: with the commands, as an operator types them; the witness is `halts` at the store."""
    place.file.write_text(AGENTS)
    place.shell.environment["CHECKREIN_HALT_TOKEN"] = HALT_TOKEN
    server = place.serve()
    at = ("agent", "reader", "--server", f"http://127.0.0.1:{server.client.port}")
    ordinary = {"CHECKREIN_HALT_TOKEN": "", "CHECKREIN_TOKEN": CLIENT_TOKEN}

    halted = place.shell.do("halt", *at, "--reason", "runaway", **ordinary)
    refused = place.shell.do("reset", *at, **ordinary)
    still = place.shell.do("halts", "--json")
    lifted = place.shell.do("reset", *at, "--reason", "mended")
    after = place.shell.do("halts", "--json")
    server.end()

    assert halted.code == 0, halted
    assert refused.code != 0
    assert "CHECKREIN_HALT_TOKEN" in refused.err
    assert "`checkrein reset`" in refused.err
    assert "runaway" in still.out
    assert (lifted.code, after.out) == (0, ""), (lifted, after)


def test_a_server_with_a_halt_token_that_could_be_guessed_does_not_start(place: Place) -> None:
    place.file.write_text(AGENTS)

    refused = place.shell.do("serve", "crew.py", "--port", "0", CHECKREIN_HALT_TOKEN="let-me")

    assert refused.code == 2
    assert "weak_token" in refused.err
    assert "let-me" not in refused.err
