"""How other code meets the screen."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from checkrein import Runtime
from checkrein.cli.commands.run import _is_ours
from checkrein.cli.screen import attach
from checkrein.errors import RunNotFound
from tests.cli.screen.pilot import SLOWLY, agent
from tests.support.patience import PATIENCE_SECONDS

SRC = Path(__file__).parents[3] / "src" / "checkrein"


@pytest.mark.anyio
async def test_an_unknown_run_is_said_before_the_screen_opens(runtime: Runtime) -> None:
    with pytest.raises(RunNotFound):
        await attach(runtime, runtime.journal, runtime.control, "r-none", owns=True)


def test_nothing_outside_this_package_imports_textual() -> None:
    importers = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
        if name.split(".")[0] == "textual"
    }

    assert importers
    assert {path for path in importers if not path.startswith("cli/screen/")} == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_the_command_line_itself_does_not_load_textual() -> None:
    code = "import sys, checkrein.cli, checkrein.cli.app; sys.exit('textual' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_SECONDS).returncode == 0


@pytest.mark.anyio
async def test_a_run_that_is_driven_here_is_known_as_ours(runtime: Runtime) -> None:
    """Else Ctrl-C in `checkrein run` would only leave."""
    run = await runtime.start(agent([SLOWLY]), "Which customers will churn?")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await runtime.journal.lease(run.id) is None:
            await asyncio.sleep(0.01)

    assert await _is_ours(runtime, run.id)
    await run.cancel()
