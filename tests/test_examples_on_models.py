"""The examples that ask a model, run as a person runs them, against the provider server that keeps its own log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from checkrein.testing.provider import Provider, Reply

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parent.parent / "examples"


async def run(provider: Provider, name: str, *arguments: str) -> str:
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": provider.openai_url,
        "OPENAI_API_KEY": str(provider.key),
        "ANTHROPIC_BASE_URL": provider.anthropic_url,
        "ANTHROPIC_API_KEY": str(provider.key),
    }
    with anyio.fail_after(120):
        done = await anyio.run_process(
            [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments], env=environment, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "reins.md").write_text("A checkrein keeps a horse from lowering its head.\n")
    (tmp_path / "notes" / "bits.md").write_text("A bit goes into the mouth.\n")
    return tmp_path / "notes"


@pytest.mark.parametrize("model", ["openai:gpt-5-mini", "anthropic:claude-sonnet-4-5"])
async def test_the_research_agent_searches_reads_and_answers(folder: Path, model: str) -> None:
    replies = [
        Reply("I search.", calls=[("search", {"words": "checkrein"})]),
        Reply("I read it.", calls=[("read", {"name": "reins.md"})]),
        Reply("It keeps a horse from lowering its head (reins.md)."),
    ]
    async with Provider(replies) as provider:
        shown = await run(provider, "research_agent.py", str(folder), "What is a checkrein?", "--model", model)

    assert "It keeps a horse from lowering its head (reins.md)." in shown
    assert "[3 turns," in shown
    assert "cost $" in shown
    assert [request.how for request in provider.log] == ["completed"] * 3
    assert "keeps a horse from lowering" in str(provider.log[2].body)


async def test_what_the_model_writes_is_not_trusted(folder: Path) -> None:
    (folder.parent / "secret.txt").write_text("the secret\n")
    replies = [Reply("Out.", calls=[("read", {"name": "../secret.txt"})]), Reply("Nothing there.")]
    async with Provider(replies) as provider:
        await run(provider, "research_agent.py", str(folder), "What is outside?")

    assert "the secret" not in str(provider.log[1].body)
    assert "There is no file ../secret.txt" in str(provider.log[1].body)


async def test_the_churn_agent_works_on_a_real_wire(tmp_path: Path) -> None:
    data = str(tmp_path)
    replies = [
        Reply("Customers.", calls=[("fetch_customers", {"data": data, "pace": 0})]),
        Reply("Lock.", calls=[("plan", {"step": 2}), ("take_lock", {"data": data})]),
        Reply("Revenue.", calls=[("join_mrr", {"data": data, "pace": 0})]),
        Reply("Three customers will leave."),
    ]
    async with Provider(replies) as provider:
        shown = await run(
            provider, "churn_on_a_real_model.py", "--folder", data, "--model", "anthropic:claude-opus-4-5"
        )

    assert "Three customers will leave." in shown
    assert len(provider.log) == 4


def test_the_program_without_a_model_reports_and_does_nothing_twice(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for n in range(3):
        (source / f"{n}.txt").write_text("two words\n")

    def play() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLES / "nightly_report.py"), str(source), str(target)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = play()

    assert done.returncode == 0, done.stderr
    assert '"files": 3' in done.stdout
    assert '"words": 6' in done.stdout
    assert (target / "report.json").exists()
