"""The page and its files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yarl

from checkrein.server.pages import BASE, UI
from tests.server.serving import Client, app_over_backend, serving
from tests.server.test_stream import Paper

pytestmark = pytest.mark.anyio

INDEX = f'<!doctype html>{BASE}<script type="module" src="/ui/app.js"></script>'


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "ui"
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "app.js").write_text("export const x = 1;")
    (folder / "parts" / "a.css").write_text("a {}")
    (folder / "secret.py").write_text("token")
    (tmp_path / "outside.js").write_text("outside")
    (folder / "link.js").symlink_to(tmp_path / "outside.js")
    return folder


@pytest.fixture
async def page(ui: Path) -> AsyncIterator[Client]:
    async with serving(app_over_backend(Paper(), ui=ui)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/runs/r-1", "text/html; charset=utf-8"),
        ("/ui/app.js", "text/javascript; charset=utf-8"),
        ("/ui/parts/a.css", "text/css; charset=utf-8"),
    ],
)
async def test_a_file_has_its_type_and_is_asked_for_again(page: Client, path: str, kind: str) -> None:
    async with page.session.get(page.base + path) as told:
        assert (told.status, told.headers["content-type"]) == (200, kind)
        assert told.headers["cache-control"] == "no-cache"
        etag = told.headers["etag"]

    async with page.session.get(page.base + path, headers={"If-None-Match": etag}) as told:
        assert (told.status, await told.read()) == (304, b"")


async def test_a_changed_file_is_sent_anew(page: Client, ui: Path) -> None:
    async with page.session.get(f"{page.base}/ui/app.js") as told:
        etag = told.headers["etag"]
    (ui / "app.js").write_text("export const x = 22;")

    async with page.session.get(f"{page.base}/ui/app.js", headers={"If-None-Match": etag}) as told:
        assert await told.text() == "export const x = 22;"


async def test_the_page_asks_for_its_files_by_version_and_they_are_kept(page: Client, ui: Path) -> None:
    async def script() -> str:
        async with page.session.get(page.base) as told:
            found = re.search(r'src="(/ui/v-[^"]+/app\.js)"', await told.text())
        assert found is not None
        return found[1]

    before = await script()
    async with page.session.get(page.base + before) as told:
        assert "immutable" in told.headers["cache-control"]
        assert await told.text() == "export const x = 1;"
    (ui / "app.js").write_text("export const x = 333;")

    after = await script()
    assert after != before
    async with page.session.get(page.base + after) as told:
        assert await told.text() == "export const x = 333;"
    async with page.session.get(page.base + before) as told:
        assert told.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/v-0123456789abcdef/secret.py",
        "/ui/v-0123456789abcdef/../../outside.js",
        "/ui/v-0123456789abcdef/%2e%2e/outside.js",
        "/ui/secret.py",
        "/ui/nothing.js",
        "/ui/../outside.js",
        "/ui/%2e%2e/outside.js",
        "/ui/..%2foutside.js",
        "/ui//etc/passwd.js",
        "/ui/link.js",
        "/ui/%00.js",
        "/ui/",
    ],
)
async def test_nothing_else_is_served(page: Client, path: str) -> None:
    async with page.session.get(yarl.URL(page.base + path, encoded=True)) as told:
        assert told.status in (400, 404)
        assert await told.text() != "outside"


def test_the_page_names_every_module_it_needs_so_that_they_come_at_once() -> None:
    """Otherwise a browser learns of each only from the one before."""
    needed: list[str] = []

    def follow(name: str) -> None:
        if name not in needed:
            needed.append(name)
            for found in re.findall(r'^import\b[^;]*?"\./([\w-]+\.js)";', (UI / name).read_text(), re.MULTILINE):
                follow(found)

    follow("app.js")
    named = re.findall(r'<link rel="modulepreload" href="/ui/([\w-]+\.js)">', (UI / "index.html").read_text())
    assert sorted(named) == sorted(set(needed) - {"app.js"})


async def test_a_page_that_is_not_installed_is_said_in_words(tmp_path: Path) -> None:
    async with serving(app_over_backend(Paper(), ui=tmp_path)) as client, client.session.get(client.base) as told:
        assert told.status == 200
        assert "not part of this installation" in await told.text()
