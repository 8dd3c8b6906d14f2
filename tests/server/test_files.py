"""Files that a call has published can be read over HTTP, from the store: those, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

import aiohttp
import pytest

from checkrein import Agent, Runtime, current_call, tool
from checkrein.calls import files
from checkrein.core.enums import CallKind, Outcome, Status
from checkrein.core.events import CallFinished, CallStarted, RunStarted
from checkrein.journal import Journal, Owner
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from tests.journal.build import created
from tests.server.serving import Client, begun

pytestmark = pytest.mark.anyio

MEMO = "# Memo\n\n<script>alert(1)</script> – äöü\n"


@tool(effect="reversible")
async def write_files(folder: str) -> str:
    """Two files, one of them twice."""
    for name, content in (("memo.md", b"a first try"), ("memo.md", MEMO.encode()), ("picture.bin", b"\xff\x00\xfe")):
        with current_call().write(Path(folder) / name, "wb") as file:
            file.write(content)
    return "written"


@tool(effect="reversible")
async def write_text(path: str, words: list[str]) -> str:
    with current_call().write(path, "w") as file:
        file.write(f"The token is {''.join(words)}.")
    return "written"


@pytest.fixture
async def run(client: Client, runtime: Runtime, tmp_path: Path) -> str:
    turns = [Turn("I write.", calls=[("write_files", {"folder": str(tmp_path)})]), Turn("Done.")]
    run = await begun(client, runtime, Agent("writer", model=ScriptedModel(turns), tools=[write_files]), "completed")
    return run


async def fetch(client: Client, run: str, number: int | str) -> aiohttp.ClientResponse:
    told = await client.session.get(f"{client.base}/api/runs/{run}/calls/c2/files/{number}")
    await told.read()
    return told


async def test_a_call_names_the_files_it_has_published_and_they_can_be_read(
    client: Client, run: str, tmp_path: Path
) -> None:
    """D31"""
    _, call = await client.get(f"/api/runs/{run}/calls/c2")

    memo, picture = await fetch(client, run, 0), await fetch(client, run, 1)

    assert call["files"] == [str(tmp_path / "memo.md"), str(tmp_path / "picture.bin")]
    assert (memo.status, await memo.text()) == (200, MEMO)
    assert memo.headers["Content-Type"].startswith("text/plain"), "what looks like a page is not one"
    assert picture.headers["Content-Disposition"].startswith("attachment")


async def test_what_is_read_is_what_was_published_whatever_becomes_of_the_file(
    client: Client, run: str, tmp_path: Path
) -> None:
    """W12: no path that a run names is opened by whoever serves it."""
    secret = tmp_path / "secret"
    secret.write_text("not for you")
    (tmp_path / "memo.md").unlink()
    (tmp_path / "memo.md").symlink_to(secret)

    told = await fetch(client, run, 0)

    assert (told.status, await told.text()) == (200, MEMO)


async def test_the_recorded_hashes_are_those_of_what_is_kept(client: Client, run: str) -> None:
    _, call = await client.get(f"/api/runs/{run}/calls/c2")

    bodies = [await (await fetch(client, run, number)).read() for number in (0, 1)]

    assert call["file_hashes"] == [hashlib.sha256(body).hexdigest() for body in bodies]


async def test_a_copy_that_is_not_as_recorded_is_not_shown(client: Client, runtime: Runtime, run: str) -> None:
    await runtime.journal.write_file(run, "c2", 0, b"something else")

    told = await fetch(client, run, 0)

    assert (told.status, (await told.json())["code"]) == (404, "file_not_kept")


async def test_a_large_file_is_named_with_its_host_and_not_shown(
    client: Client, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LARGEST_KEPT", len(MEMO.encode()) - 1)
    turns = [Turn("I write.", calls=[("write_files", {"folder": str(tmp_path)})]), Turn("Done.")]
    large = Agent("large", model=ScriptedModel(turns), tools=[write_files])
    run = await begun(client, runtime, large, "completed")

    told, small = await fetch(client, run, 0), await fetch(client, run, 1)

    answer = await told.json()
    assert (told.status, answer["code"]) == (404, "file_not_kept")
    assert (answer["host"], answer["path"]) == (this_process().host, str(tmp_path / "memo.md"))
    assert f"It is on {this_process().host}: {tmp_path / 'memo.md'}." in answer["message"]
    assert small.status == 200


async def test_a_file_of_the_servers_own_disk_that_a_worker_names_is_not_shown(
    client: Client, runtime: Runtime, tmp_path: Path
) -> None:
    """W12: whoever may append the end of a call may name any path there."""
    secret = tmp_path / "secret"
    secret.write_text("not for you")
    run = await begun(client, runtime, Agent("idle", model=ScriptedModel(["Hello."])), "completed")
    hers = await made_by_hand(runtime.journal, "r-evil", str(secret))

    told = await client.session.get(f"{client.base}/api/runs/{hers}/calls/c1/files/0")

    answer = await told.json()
    assert (told.status, answer["code"], answer["host"]) == (404, "file_not_kept", "far-away")
    assert "not for you" not in await told.text()
    assert run != hers


async def made_by_hand(journal: Journal, run: str, path: str) -> str:
    """A run as a store of an earlier version has it, or a hostile worker writes it: its call names a file."""
    state = await journal.create(created(run))
    lease = await journal.claim(run, Owner(process="far", host="far-away"), seconds=60)
    epoch = lease.epoch
    started = RunStarted(id="s", at=1.0, epoch=epoch, status=Status.RUNNING, host="far-away")
    permit = CallStarted(id="c1", at=2.0, call="c1", kind=CallKind.TOOL, name="write", epoch=epoch)
    ended = CallFinished(id="c1.end", at=3.0, call="c1", outcome=Outcome.COMPLETED, files=(path,))
    await journal.append(run, [started], after=state.seq, epoch=epoch)
    await journal.append(run, [permit], after=state.seq + 1, epoch=epoch)
    await journal.append(run, [ended], after=state.seq + 2, epoch=epoch)
    return run


async def test_secrets_are_taken_out_of_what_is_kept_and_the_file_is_as_it_was_written(
    client: Client, runtime: Runtime, tmp_path: Path
) -> None:
    secret = "ckr_" + "s3cr3t" * 8
    turns = [Turn("I write.", calls=[("write_text", {"path": str(tmp_path / "a"), "words": ["ckr_", "s3cr3t" * 8]})])]
    run = await begun(
        client, runtime, Agent("leaky", model=ScriptedModel([*turns, "Done."]), tools=[write_text]), "completed"
    )

    told = await fetch(client, run, 0)

    assert told.status == 200
    assert secret not in await told.text()
    assert (tmp_path / "a").read_text() == f"The token is {secret}."


@pytest.mark.parametrize("number", [-1, 2, 99999999999999999999])
async def test_a_number_that_no_file_has_is_a_404(client: Client, run: str, number: int) -> None:
    assert (await fetch(client, run, number)).status == 404


async def test_a_call_that_was_not_made_has_no_files(client: Client, run: str) -> None:
    status, told = await client.get(f"/api/runs/{run}/calls/nobody/files/0")

    assert (status, told["code"]) == (404, "file_not_found")
