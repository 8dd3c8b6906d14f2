"""The page and its files."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yarl

from checkrein.control.view import Shown
from checkrein.core import wording
from checkrein.core.enums import EffectState, Outcome, Status, Verb
from checkrein.server.pages import BASE, UI, WORDING
from tests.server.serving import Client, app_over_backend, serving
from tests.server.test_stream import Paper

pytestmark = pytest.mark.anyio

EMBED = Path(__file__).parents[2] / "docs" / "howto" / "embed.md"
INDEX = f'<!doctype html>{BASE}<script type="module" src="/ui/app.js"></script>'


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    folder = tmp_path / "ui"
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "app.js").write_text("export const x = 1;")
    (folder / "parts" / "a.css").write_text("a {}")
    (folder / "parts" / "b.js").write_text("export const y = 1;")
    (folder / "secret.py").write_text("token")
    (folder / "jsconfig.json").write_text("{}")
    (tmp_path / "outside.js").write_text("outside")
    (folder / "link.js").symlink_to(tmp_path / "outside.js")
    (folder / "parts" / "link.js").symlink_to(tmp_path / "outside.js")
    (folder / "elsewhere").symlink_to(tmp_path)
    (tmp_path / "ui-beside").mkdir()
    (tmp_path / "ui-beside" / "b.js").write_text("outside")
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


@pytest.mark.parametrize("name", ["app.js", "parts/b.js"])
async def test_the_page_asks_for_its_files_by_version_and_they_are_kept(page: Client, ui: Path, name: str) -> None:
    async def address() -> str:
        async with page.session.get(page.base) as told:
            found = re.search(r'src="(/ui/v-[^"]+/)app\.js"', await told.text())
        assert found is not None
        return found[1] + name

    before = await address()
    was = (ui / name).read_text()
    async with page.session.get(page.base + before) as told:
        assert "immutable" in told.headers["cache-control"]
        assert await told.text() == was
    (ui / name).write_text("export const x = 333;")

    after = await address()
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
        "/ui/jsconfig.json",
        "/ui/parts",
        "/ui/parts/",
        "/ui/parts/link.js",
        "/ui/parts/../../outside.js",
        "/ui/parts/%2e%2e/%2e%2e/outside.js",
        "/ui/parts/..%2f..%2foutside.js",
        "/ui/parts/../../ui-beside/b.js",
        "/ui/parts/%2e%2e/%2e%2e/ui-beside/b.js",
        "/ui/parts%5c..%5c..%5coutside.js",
        "/ui/parts//%2e%2e//%2e%2e/outside.js",
        "/ui/parts/%00/b.js",
        "/ui/elsewhere/outside.js",
        "/ui/v-0123456789abcdef/parts/../../../outside.js",
        "/ui/v-0123456789abcdef/parts/%2e%2e/%2e%2e/outside.js",
        "/ui/v-0123456789abcdef/elsewhere/outside.js",
        "/ui/v-0123456789abcdef/v-0123456789abcdef/%2e%2e/%2e%2e/outside.js",
    ],
)
async def test_nothing_else_is_served(page: Client, path: str) -> None:
    async with page.session.get(yarl.URL(page.base + path, encoded=True)) as told:
        assert told.status in (400, 404)
        assert await told.text() != "outside"


def modules(entry: str) -> set[str]:
    """This module of the page and all that it imports, by their paths in the folder."""
    found: set[str] = set()

    def follow(path: Path) -> None:
        name = path.resolve().relative_to(UI).as_posix()
        if name in found:
            return
        found.add(name)
        if name == WORDING:
            return
        for other in re.findall(r'^(?:im|ex)port\b[^;]*?"(\.[^"]+)";', path.read_text(), re.MULTILINE):
            follow(path.parent / other)

    follow(UI / entry)
    return found


def test_the_page_names_every_module_it_needs_so_that_they_come_at_once() -> None:
    """Otherwise a browser learns of each only from the one before."""
    named = re.findall(r'<link rel="modulepreload" href="/ui/([^"]+)">', (UI / "index.html").read_text())

    assert sorted(named) == sorted(modules("app.js") - {"app.js"})


def test_every_module_in_the_folder_is_needed_by_the_page_or_by_the_bar() -> None:
    there = {path.relative_to(UI).as_posix() for path in UI.rglob("*.js")}

    assert there == (modules("app.js") | modules("bar.js")) - {WORDING}


async def test_the_address_of_the_bar_that_other_pages_were_told_leads_to_the_element() -> None:
    """Pages of other people name it, so it stays whatever becomes of the folder."""
    told_to_others = re.findall(r'src="https://agents\.example\.com(/ui/[^"]+)"', EMBED.read_text())
    assert told_to_others == ["/ui/bar.js"]

    async with serving(app_over_backend(Paper())) as client:
        for name in modules("bar.js"):
            async with client.session.get(f"{client.base}/ui/{name}") as told:
                assert (told.status, told.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
                assert name == WORDING or await told.text() == (UI / name).read_text()

    assert "elements/checkrein-bar.js" in modules("bar.js")
    assert 'customElements.define("checkrein-bar"' in (UI / "elements/checkrein-bar.js").read_text()


# -- its words


async def words_of(client: Client, address: str = f"/ui/{WORDING}") -> object:
    async with client.session.get(client.base + address) as told:
        assert (told.status, told.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
        module = await told.text()
    assert module.startswith("export default {")
    return json.loads(module.removeprefix("export default ").removesuffix(";\n"))


async def test_the_page_is_given_the_words_of_the_command_line_as_a_module(page: Client) -> None:
    assert await words_of(page) == wording.words_for_page()


async def test_other_words_have_another_address(page: Client, ui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a browser keeps must not outlive the words."""

    async def address(client: Client) -> str:
        async with client.session.get(client.base) as told:
            found = re.search(r'src="(/ui/v-[^"]+/)app\.js"', await told.text())
        assert found is not None
        return found[1] + WORDING

    before = await address(page)
    monkeypatch.setattr(wording, "STATUS_WORDS", {**wording.STATUS_WORDS, Status.RUNNING: "At it"})

    async with serving(app_over_backend(Paper(), ui=ui)) as other:
        after = await address(other)
        assert after != before
        assert await words_of(other, after) == wording.words_for_page()
        async with other.session.get(other.base + after) as told:
            assert "immutable" in told.headers["cache-control"]
            assert "At it" in await told.text()


def test_every_step_can_be_told() -> None:
    assert set(wording.SHOWN_WORDS) == set(Shown)


def own_words(script: str) -> list[str]:
    """Where a script has its own English for a word of the runtime: `killed: "ended by force"`."""
    keys = "|".join({*Status, *Outcome, *EffectState, *Verb})
    found = re.finditer(rf"""(?<![\w.-])["']?({keys})["']?\s*:\s*["'`]([^"'`]{{2,}})["'`]""", script)
    return [one[0] for one in found if one[2] not in set(Verb)]  # a status may lead to its verb


def test_no_script_has_its_own_word_for_a_status_an_outcome_an_effect_or_a_verb() -> None:
    assert own_words('const CALLS = { killed: "ended by force" };') == ['killed: "ended by force"']

    assert {path.name: own_words(path.read_text()) for path in UI.rglob("*.js") if own_words(path.read_text())} == {}


def test_every_word_that_a_script_asks_for_is_given() -> None:
    words = wording.words_for_page()
    scripts = "".join(path.read_text() for path in UI.rglob("*.js"))
    tables = re.findall(r'wordFor\("(\w+)"', scripts)
    named = re.findall(r'wordFor\("(\w+)", "(\w+)"\)', scripts)

    assert set(tables) >= {"statuses", "receipt_phrases"}
    assert set(tables) <= set(words)
    assert ("receipt_phrases", "nothing") in named
    assert [one for one in named if one[1] not in words[one[0]]] == []


async def test_a_page_that_is_not_installed_is_said_in_words(tmp_path: Path) -> None:
    async with serving(app_over_backend(Paper(), ui=tmp_path)) as client, client.session.get(client.base) as told:
        assert told.status == 200
        assert "not part of this installation" in await told.text()
