"""The examples of frameworks, run as a person runs them; the diff in each how-to page is the real one, and short."""

from __future__ import annotations

import difflib
import os
import sys
from pathlib import Path

import anyio
import pytest

from checkrein.testing.provider import Provider, Reply
from tests.support.docs import ROOT, blocks_of

pytestmark = pytest.mark.anyio

EXAMPLES = ROOT / "examples" / "frameworks"
PAGES = {
    "pydantic_ai": "pydantic-ai.md",
    "langgraph": "langgraph.md",
    "openai_agents": "openai-agents.md",
    "google_adk": "google-adk.md",
}
MOST_LINES = 10


@pytest.mark.parametrize("framework", PAGES)
def test_the_diff_that_the_page_prints_is_the_diff_of_the_examples(framework: str) -> None:
    plain = (EXAMPLES / f"{framework}_plain.py").read_text().partition('"""\n')[2].splitlines()
    ours = (EXAMPLES / f"{framework}_interruptible.py").read_text().partition('"""\n')[2].splitlines()
    changed = [
        line
        for line in difflib.unified_diff(plain, ours, n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@")) and line[1:].strip()
    ]
    (printed,) = [
        block for block in blocks_of(ROOT / "docs/howto/frameworks" / PAGES[framework]) if block.language == "diff"
    ]

    assert printed.code.splitlines() == changed
    assert len(changed) <= MOST_LINES


def test_every_example_has_a_page() -> None:
    named = {path.name.removesuffix("_plain.py") for path in EXAMPLES.glob("*_plain.py")}

    assert named == PAGES.keys()


async def run(provider: Provider, folder: Path, *command: str) -> str:
    environment = {**os.environ, "OPENAI_BASE_URL": provider.openai_url, "OPENAI_API_KEY": str(provider.key)}
    environment |= {"GOOGLE_GEMINI_BASE_URL": provider.gemini_url, "GOOGLE_API_KEY": str(provider.key)}
    environment["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # it would ask a server elsewhere
    with anyio.fail_after(120):
        done = await anyio.run_process([sys.executable, *command], env=environment, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("framework", sorted(PAGES))
async def test_an_example_does_the_same_with_and_without(framework: str, tmp_path: Path) -> None:
    replies = [
        Reply("I look.", calls=[("find_order", {"number": 7})]),
        Reply("I pay.", calls=[("refund", {"number": 7, "francs": 40})]),
        Reply("40 francs are on their way."),
    ]
    async with Provider(replies) as provider:
        plain = await run(provider, tmp_path, str(EXAMPLES / f"{framework}_plain.py"))
        provider.play(replies)
        file = str(EXAMPLES / f"{framework}_interruptible.py")
        ours = await run(
            provider, tmp_path, "-c", "from checkrein.cli import main; main()", "run", file, "Refund order 7."
        )

    assert "40 francs are on their way." in plain
    assert "40 francs are on their way." in ours
    assert (tmp_path / "refunds.log").read_text() == "7 40\n" * 2
