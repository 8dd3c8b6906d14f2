"""The API inside somebody else's application: under any prefix, with their users."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount

import checkrein
from checkrein import Agent, Principal, Role, Runtime
from checkrein.models import ScriptedModel, Turn
from checkrein.server.auth import gate
from tests.server.serving import Client, serving
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
WORDS = sentences(400)


def talker() -> Agent:
    return Agent("talker", model=ScriptedModel(lambda _: Turn(WORDS), tokens_per_second=50))


def by_header(request: Request) -> Principal | None:
    user = request.headers.get("x-user")
    return None if user is None else Principal(name=user, role=Role.CONTROLLER, owner=user)


async def by_header_later(request: Request) -> Principal | None:
    await asyncio.sleep(0)
    return by_header(request)


@asynccontextmanager
async def mounted(app: Any, prefix: str) -> AsyncIterator[Client]:
    async with serving(app) as client:
        client.base += prefix
        yield client


ADA, BOB = {"x-user": "ada"}, {"x-user": "bob"}


@pytest.mark.parametrize("authorize", [by_header, by_header_later])
@pytest.mark.parametrize("prefix", ["/agents", "/deep/down/here"])
async def test_it_works_under_any_prefix_with_the_applications_own_users(
    runtime: Runtime, prefix: str, authorize: Any
) -> None:
    runtime.add(talker())
    app = FastAPI()
    app.mount(prefix, checkrein.asgi(runtime, authorize=authorize))

    async with mounted(app, prefix) as client:
        status, run = await client.post("/api/runs", {"agent": "talker", "goal": "go"}, headers=ADA)
        async with client.stream(f"/api/runs/{run['id']}/events", headers=ADA) as stream:
            await stream.until("call.chunk")
        cancelled = await client.post(f"/api/runs/{run['id']}/cancel", headers=ADA)
        others = await client.get(f"/api/runs/{run['id']}", headers=BOB)
        nobody = await client.get("/api/runs")

    assert (status, run["owner"]) == (201, "ada")
    assert (cancelled[0], cancelled[1]["by"]) == (200, "ada")
    assert (others[0], others[1]["code"]) == (404, "run_not_found")
    assert (nobody[0], nobody[1]["code"]) == (401, "unauthorised")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("change", ["logged out", "another role", "its database is away"])
async def test_a_stream_ends_soon_after_the_applications_own_login_has(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, change: str, is_async: bool
) -> None:
    monkeypatch.setattr(gate, "ASK_AGAIN_SECONDS", 0.1)
    logged_in: dict[str, Role | None] = {"ada": Role.CONTROLLER}
    asked: list[str] = []

    def who(request: Request) -> Principal | None:
        asked.append(request.url.path)
        if not logged_in:
            raise ConnectionError("no database")
        role = logged_in.get(request.headers.get("x-user", ""))
        # When it ends is put off with every request, as logins do.
        if role is None:
            return None
        return Principal(name="ada", role=role, owner="ada", expires_at=time.time() + 3600)

    async def who_later(request: Request) -> Principal | None:
        return who(request)

    runtime.add(talker())
    app = FastAPI()
    app.mount("/agents", checkrein.asgi(runtime, authorize=who_later if is_async else who))
    async with mounted(app, "/agents") as client:
        _, run = await client.post("/api/runs", {"agent": "talker", "goal": "go"}, headers=ADA)
        async with client.stream(f"/api/runs/{run['id']}/live", headers=ADA) as stream:
            await stream.next()
            before = len(asked)
            while len(asked) < before + 3:  # asked again and again, and it goes on
                assert await stream.next() is not None
            if change == "its database is away":
                logged_in.clear()
            else:
                logged_in["ada"] = Role.VIEWER if change == "another role" else None

            await stream.rest()  # ends, though the run does not
        logged_in["ada"] = Role.CONTROLLER
        await client.post(f"/api/runs/{run['id']}/cancel", headers=ADA)


async def test_it_works_in_a_plain_starlette_application(runtime: Runtime) -> None:
    runtime.add(talker())
    app = Starlette(routes=[Mount("/x", app=checkrein.asgi(runtime, authorize=by_header))])

    async with mounted(app, "/x") as client:
        assert (await client.get("/api/agents", headers=ADA))[1]["agents"][0]["name"] == "talker"
        assert (await client.get("/api/nothing", headers=ADA))[1]["code"] == "not_found"


async def test_the_page_knows_where_it_is_mounted(runtime: Runtime) -> None:
    app = FastAPI()
    app.mount("/agents", checkrein.asgi(runtime, authorize=by_header))

    async with mounted(app, "/agents") as client:
        async with client.session.get(f"{client.base}/") as told:
            page = await told.text()
            assert told.status == 200
            assert "default-src 'none'" in told.headers["content-security-policy"]
        script = page.partition('src="')[2].partition('"')[0]
        assert script.startswith("/agents/ui/")
        async with client.session.get(client.base.removesuffix("/agents") + script) as told:
            assert told.status == 200
            assert told.headers["content-type"].startswith("text/javascript")


async def test_without_authorize_only_tokens_let_anybody_in(runtime: Runtime) -> None:
    async with mounted(checkrein.asgi(runtime), "") as client:
        assert (await client.get("/api/runs"))[0] == 401
        assert (await client.get("/api/runs", headers=ADA))[0] == 401


async def test_a_host_that_was_not_named_is_refused(runtime: Runtime) -> None:
    """DNS rebinding: the name in the address must be one the application goes by."""
    async with mounted(checkrein.asgi(runtime, authorize=by_header, hosts=["app.example.com"]), "") as client:
        named = await client.get("/api/runs", headers={**ADA, "host": "app.example.com"})
        other = await client.get("/api/runs", headers={**ADA, "host": "evil.example"})

    assert named[0] == 200
    assert (other[0], other[1]["code"]) == (421, "wrong_host")


async def test_a_runtime_that_is_not_open_yet_is_a_503(store: str) -> None:
    async with mounted(checkrein.asgi(Runtime(store), authorize=by_header), "") as client:
        status, told = await client.get("/api/runs", headers=ADA)

    assert (status, told["code"]) == (503, "store_unavailable")


# -- the example


@pytest.fixture
def example(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "uvicorn", "examples.mounted_in_fastapi:app", "--port", "0"]
    env = {**os.environ, "STORE": f"sqlite:///{tmp_path}/runs.db"}
    server = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield address_of(server)
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_SECONDS)


def address_of(server: subprocess.Popen[bytes]) -> str:
    """Where the server says that it listens."""
    assert server.stderr is not None
    said = b""
    for line in server.stderr:
        said += line
        if found := re.search(rb"running on (http://[0-9.:]+)", line):
            return found[1].decode()
    raise AssertionError(f"it did not begin: {said.decode()}")


async def test_the_example_mounts_the_api_beside_its_own_routes(example: str) -> None:
    async with browser(example) as session, browser(example) as others:
        async with session.get(f"{example}/agents/") as told:
            page = await told.text()
            assert (told.status, told.url.path) == (200, "/agents/"), "through the login, and back"
            assert "checkrein-base" in page
        async with session.post(f"{example}/orders/7/check") as told:
            run = (await told.json())["run"]
        async with session.get(f"{example}/agents/api/runs/{run}/events") as stream:
            async for line in stream.content:
                if line.startswith(b"event: call.chunk"):
                    break
        async with session.post(f"{example}/agents/api/runs/{run}/cancel") as told:
            receipt = await told.json()
        await others.get(f"{example}/login", params={"user": "bob"})
        async with others.get(f"{example}/agents/api/runs/{run}") as told:
            other = told.status

    assert (receipt["status"], receipt["by"]) == ("cancelled", "ada")
    assert other == 404


def browser(origin: str) -> aiohttp.ClientSession:
    """Keeps cookies, and says which page asks."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True), headers={"Origin": origin})


async def test_the_page_on_mounting_works_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = (ROOT / "docs" / "howto" / "mount.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    module: dict[str, Any] = {"__name__": "web"}
    exec(compile(block, "mount.md", "exec"), module)

    async with module["runtime"], serving(module["app"]) as client, browser(client.base) as session:
        async with session.get(f"{client.base}/agents/runs/r-1", allow_redirects=False) as told:
            assert (told.status, told.headers["location"]) == (303, "/login?next=%2Fagents%2Fruns%2Fr-1")
        async with session.get(f"{client.base}/agents/ui/bar.js") as told:
            assert told.status == 200, "what the page is made of needs no login"
        async with session.get(f"{client.base}/agents/api/runs") as told:
            assert told.status == 401, "a program is told, and not sent anywhere"
        async with session.get(f"{client.base}/agents/") as told:
            assert (told.status, told.url.path) == (200, "/agents/")
        async with session.post(f"{client.base}/agents/api/runs", json={"agent": "helper", "goal": "Hi"}) as told:
            assert (told.status, (await told.json())["owner"]) == (201, "ada")
