"""Files that a call has published can be read over HTTP: those, and no others."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from checkrein import Agent, Runtime, current_call, tool
from checkrein.models import ScriptedModel, Turn
from tests.server.serving import Client

pytestmark = pytest.mark.anyio

MEMO = "# Memo\n\n<script>alert(1)</script> – äöü\n"


@tool(effect="reversible")
async def write_files(folder: str) -> str:
    """Two files, one of them twice."""
    for name, content in (("memo.md", b"a first try"), ("memo.md", MEMO.encode()), ("picture.bin", b"\xff\x00\xfe")):
        with current_call().write(Path(folder) / name, "wb") as file:
            file.write(content)
    return "written"


@pytest.fixture
async def run(client: Client, runtime: Runtime, tmp_path: Path) -> str:
    turns = [Turn("I write.", calls=[("write_files", {"folder": str(tmp_path)})]), Turn("Done.")]
    runtime.add(Agent("writer", model=ScriptedModel(turns), tools=[write_files]))
    run = await client.start("writer")
    await client.until(run, "completed")
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


async def test_a_file_that_is_gone_or_was_replaced_by_a_link_is_not_read(
    client: Client, run: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for you")
    (tmp_path / "memo.md").unlink()
    (tmp_path / "memo.md").symlink_to(secret)
    (tmp_path / "picture.bin").unlink()

    linked, gone = await fetch(client, run, 0), await fetch(client, run, 1)

    assert (linked.status, gone.status) == (404, 404)
    assert "not for you" not in await linked.text()
    assert (await linked.json())["code"] == "file_not_found"


@pytest.mark.parametrize("number", [-1, 2, 99999999999999999999])
async def test_a_number_that_no_file_has_is_a_404(client: Client, run: str, number: int) -> None:
    assert (await fetch(client, run, number)).status == 404


async def test_a_call_that_was_not_made_has_no_files(client: Client, run: str) -> None:
    status, told = await client.get(f"/api/runs/{run}/calls/nobody/files/0")

    assert (status, told["code"]) == (404, "file_not_found")
