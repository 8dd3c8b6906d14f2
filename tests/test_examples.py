"""Every example runs, and shows what it says it shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tour_shows_a_stop_an_honest_crash_and_a_forgery_that_is_noticed() -> None:
    """D3, D7, D18, D30, D33: the core and the journal, without anything above them."""
    shown = run("foundation_tour.py")

    assert "stops now · takes back draft and lock · keeps the text so far" in shown
    assert "is cancelling: write_memo may not begin" in shown
    assert "draft: undone" in shown
    assert "lock: undone" in shown
    assert "It waits: say whether send_invoice happened" in shown
    assert "send_invoice is tried again: False" in shown
    assert "does not follow from the one before" in shown


def test_every_example_is_run_by_a_test() -> None:
    on_models = {"research_agent.py", "churn_on_a_real_model.py", "nightly_report.py"}  # test_examples_on_models
    with_a_server = {"mcp_agent.py", "notes_server.py"}  # agents/mcp/test_example
    over_http = {"mounted_in_fastapi.py"}  # server/test_asgi
    tested = {"foundation_tour.py"} | on_models | with_a_server | over_http

    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
    assert {path.parent.name for path in EXAMPLES.glob("*/*.py")} == {"tour", "frameworks"}
    # demo/test_tour, adapters/test_examples
