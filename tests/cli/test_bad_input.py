"""Whatever is typed: one sentence with a code, exit 2, and never a traceback or *a mistake in Checkrein*."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkrein.cli import output
from checkrein.cli.app import run as run_program
from checkrein.journal import open_journal
from tests.journal.build import created

WORDS = ("", " ", "\0", "\x1b[2J", "r-", "r-\0", "é" * 300, "x" * 5000, "../..", "/", "~", "-", "a b", ":", "a:", ".py")
"""What may stand where a run, a call, a file, a name or an address is wanted."""

# fmt: off
LINES = [
    "pause {}", "resume {}", "resume last {} {}", "redirect last", "ask", "cancel {}", "approve {}", "deny last {}",
    "resolve {} happened", "resolve last {} {}", "abort last {}", "retry-undo {}", "watch {} --plain", "show {}",
    "ps --store {}", "pause --store {}", "stops --store {}", "doctor --store {}", "doctor {}", "token list --store {}",
    "run --resume {} {}", "serve nothing.py --store {}",
    "ps --server {}", "pause --server {}", "watch --server {}", "start a {} --server {}", "completion {}",
    "token create --role viewer --owner a --run {}", "token create --role viewer --owner a --expires {}",
    "token revoke {}", "help {}", "{}",
]
# fmt: on


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")

    async def make() -> None:
        async with await open_journal(f"{folder}/.checkrein/runs.db") as journal:
            await journal.create(created("r-3f0a91c2b7d4"))
            await journal.create(created("r-77aa00112233"))

    asyncio.run(make())
    (folder / "nothing.txt").touch()
    return folder


@pytest.mark.parametrize("line", LINES)
def test_a_word_that_cannot_be_meant_is_refused_in_one_sentence(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(output, "_options", [])
    monkeypatch.delenv("CHECKREIN_STORE", raising=False)
    monkeypatch.delenv("CHECKREIN_SERVER", raising=False)
    monkeypatch.setenv("CHECKREIN_TOKEN", "")

    for word in WORDS:
        arguments = [part.format(word) for part in line.split(" ")]
        code = run_program(arguments)
        said = capsys.readouterr()

        assert code in (0, 1, 2), (arguments, said)
        assert "error[internal]" not in said.err, (arguments, said)
        assert "Traceback" not in said.out + said.err
        if code == 2:
            assert said.err.startswith("error["), (arguments, said)
            assert said.err.count("\n") == 1, (arguments, said)
            assert len(said.err) < 20_000


def test_a_file_that_is_not_there_is_said_before_a_server_begins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("checkrein.server.processes.front.listen", lambda *_: pytest.fail("it listens"))

    code = run_program(["serve", "nothing.py", "--port", "0"])

    assert (code, capsys.readouterr().err.split(":")[0]) == (2, "error[file_not_found]")
