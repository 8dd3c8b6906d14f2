"""What a shell is offered: asked as bash asks, with the line so far in the environment."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from checkrein.cli import completion
from checkrein.cli.app import run as run_program
from checkrein.journal import open_journal
from tests.cli.shell import Done
from tests.journal.build import created
from tests.support.patience import PATIENCE_SECONDS

Ask = Callable[[str], list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with two runs, and a file with agents that must not be carried out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)

    async def make(store: str) -> None:
        async with await open_journal(store) as journal:
            await journal.create(created("r-3f0a91c2b7d4", goal="Count the stock."))
            await journal.create(created("r-77aa00112233", goal="Write to ann."))

    asyncio.run(make("sqlite:///.checkrein/runs.db"))
    (tmp_path / "crew.py").write_text(
        "from checkrein import Agent, agent\n"
        "raise SystemExit('carried out')\n"
        'one = Agent("counter", model="x:y")\n'
        "@agent\nasync def writer(ctx): ...\n"
        '@agent(name="clerk")\nasync def third(ctx): ...\n'
    )
    return tmp_path


@pytest.fixture
def offered(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    def ask(line: str) -> list[str]:
        """What bash is offered for a line whose last word is being typed."""
        words = line.split(" ")
        monkeypatch.setenv(completion.VARIABLE, "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        done = Done(run_program([]), *capsys.readouterr())
        assert (done.code, done.err) == (0, "")
        return [found.partition(",")[2] for found in done.lines if found]

    return ask


def test_commands_are_offered(offered: Ask) -> None:
    assert offered("checkrein re") == ["resume", "redirect", "resolve", "retry-undo", "reset"]
    assert "cancel" in offered("checkrein ")


def test_runs_are_offered_to_every_verb_by_their_ids(offered: Ask) -> None:
    for verb in ("pause", "resume", "redirect", "cancel", "ask", "approve", "abort", "resolve", "watch"):
        assert offered(f"checkrein {verb} r-") == ["r-77aa00112233", "r-3f0a91c2b7d4"], verb
    assert offered("checkrein cancel r-3") == ["r-3f0a91c2b7d4"]
    assert offered("checkrein cancel 77") == ["r-77aa00112233"]
    assert offered("checkrein cancel la") == ["last"]
    assert offered("checkrein run crew.py --resume r-3") == ["r-3f0a91c2b7d4"]


def test_the_words_after_a_run_are_nobody_elses(offered: Ask) -> None:
    assert offered("checkrein resume last r-") == []


def test_the_agents_of_a_file_are_offered_and_the_file_is_not_carried_out(offered: Ask) -> None:
    assert sorted(offered("checkrein run crew.py --agent ")) == ["clerk", "counter", "writer"]
    assert sorted(offered("checkrein run crew.py --agent c")) == ["clerk", "counter"]


def test_options_are_offered(offered: Ask) -> None:
    assert offered("checkrein cancel --un") == ["--undo"]


def test_another_store_is_heeded_and_one_that_is_not_there_offers_nothing(offered: Ask, folder: Path) -> None:
    assert offered("checkrein cancel --store nowhere.db r-") == []
    assert not (folder / "nowhere.db").exists()


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_shell_is_given_what_it_must_read(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert completion.VARIABLE in script
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, timeout=PATIENCE_SECONDS)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_an_unknown_shell_gets_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["completion", "tcsh"]) == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in capsys.readouterr().err
