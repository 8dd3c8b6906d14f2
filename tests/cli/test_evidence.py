"""`checkrein evidence`, `verify`, `heads`, `export` and `prune`, as somebody types them."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.control.evidence.sample import confessed


@pytest.fixture
def run(shell: Shell) -> str:
    """A run that was stopped while it recited its instructions."""
    path = shell.folder / ".checkrein" / "runs.db"
    path.parent.mkdir(exist_ok=True)
    return asyncio.run(confessed(f"sqlite:///{path}")).run


def test_a_bundle_is_made_and_verified_from_a_terminal(shell: Shell, run: str) -> None:
    made = shell.say("evidence", "init")
    key = shell.folder / ".checkrein" / "runs.db.access" / "signing.key"
    assert made.code == 0, made.err
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert key.read_text().strip() not in made.out + made.err

    written = shell.say("evidence", run, "-o", "stop.zip", "--by", "ana")
    checked = shell.say("verify", "stop.zip")
    published = shell.say("heads", "-o", "heads.jsonl")

    bundle = shell.folder / "stop.zip"
    assert (written.code, checked.code, published.code) == (0, 0, 0), written.err + checked.err + published.err
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    assert "signed by SHA256:" in checked.out
    assert any(line.startswith("stop") and "cancel by ana" in line for line in checked.lines)
    assert shell.say("verify", "stop.zip", "--heads", "heads.jsonl").code == 0

    damaged = bytearray(bundle.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (shell.folder / "broken.zip").write_bytes(damaged)
    broken = shell.say("verify", "broken.zip")
    assert broken.code == 5
    assert "broken" in broken.err
    assert shell.say("verify", "stop.zip", "--key", "SHA256:" + "0" * 32).code == 6
    assert shell.say("verify", str(key)).code == 2
    assert shell.say("verify", "nothing.zip").code == 2
    assert shell.say("verify", "stop.zip", "--key", "tomorrow").code == 2


def test_a_key_that_was_rotated_still_verifies_what_it_signed(shell: Shell, run: str) -> None:
    first = shell.say("evidence", "init", "--json").json[0]["fingerprint"]
    shell.say("evidence", run, "-o", "old.zip")

    assert shell.say("evidence", "init").code == 2, "a key is not replaced by accident"
    second = shell.say("evidence", "init", "--rotate", "--json").json[0]["fingerprint"]

    assert first != second
    assert shell.say("verify", "old.zip").code == 0
    assert shell.say("verify", "old.zip", "--key", second).code == 6
    shell.say("evidence", run, "-o", "new.zip")
    assert shell.say("verify", "new.zip", "--key", first, "--key", second).code == 0


def test_without_a_key_a_bundle_says_that_it_is_not_signed(shell: Shell, run: str) -> None:
    written = shell.say("evidence", run, "-o", "stop.zip")
    checked = shell.say("verify", "stop.zip")

    assert (written.code, checked.code) == (0, 6)
    assert "not signed" in written.err
    assert "not signed" in checked.err


def test_a_key_that_others_may_read_signs_nothing(shell: Shell, run: str) -> None:
    shell.say("evidence", "init")
    key = shell.folder / ".checkrein" / "runs.db.access" / "signing.key"
    key.chmod(0o644)

    refused = shell.say("evidence", run, "-o", "stop.zip")

    assert refused.code == 2
    assert "signing_key_refused" in refused.err
    assert not (shell.folder / "stop.zip").exists()


def test_stops_as_a_table_and_a_run_as_lines(shell: Shell, run: str) -> None:
    head, *lines = shell.say("stops", "--csv", "--verb", "cancel").lines
    exported = [json.loads(line) for line in shell.say("export", run).lines]

    assert head.split(",")[:4] == ["at", "store_at", "verb", "by"]
    assert len(lines) == 1
    assert ",cancel,ana," in lines[0]
    assert "confession" in lines[0]
    assert [line["seq"] for line in exported if "seq" in line] == list(range(1, 11))
    assert "".join(line["chunk"]["text"] for line in exported if "chunk" in line).startswith("Of course")
    assert shell.say("stops", "--csv", "--json").code == 2


def test_prune_wants_an_age_with_a_unit_and_a_key(shell: Shell, run: str) -> None:
    unclear, unsigned = shell.say("prune", "--older-than", "90"), shell.say("prune", "--older-than", "90d")
    shell.say("evidence", "init")
    young = shell.say("prune", "--older-than", "1h", "--json")

    assert (unclear.code, unsigned.code, young.code) == (2, 2, 0)
    assert "no_signing_key" in unsigned.err
    assert young.json == [{"deleted": [], "kept": {}, "copies": ""}]
    assert Path(shell.folder / ".checkrein" / "runs.db").exists()
