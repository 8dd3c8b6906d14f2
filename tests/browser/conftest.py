"""A browser, a server and a provider, shared by all tests of this folder; a page of its own for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from checkrein.testing.provider import Reply
from tests.browser.agents import LONG
from tests.browser.bars import Bar
from tests.browser.served import PATIENCE_MS, Provider, Server
from tests.browser.states import clear

CHROMIUM = os.environ.get("CHECKREIN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",  # a process for every tab would cost more than what is done in it
]

expect.set_options(timeout=PATIENCE_MS)  # of its own it waits for five seconds, which a busy machine may need


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("There is no Chromium here; set CHECKREIN_CHROMIUM to one.")
    # Until it is stopped, an event loop counts as running: so not for longer than this folder.
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """Streams slowly, for longer than any test takes."""
    provider = Provider(tmp_path_factory.mktemp("provider"), [Reply(LONG, tokens_per_second=40)] * 20)
    yield provider
    provider.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server"), provider) as server:
        yield server


@pytest.fixture(scope="package")
def mortal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("mortal")) as server:
        yield server


@pytest.fixture
def own_server(mortal_server: Server) -> Server:
    """A server that a test has for itself and may end. To start one takes longer than most tests."""
    if not mortal_server.is_up:
        mortal_server.begin()
    clear(mortal_server)
    return mortal_server


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[Server]:
    """A server on which nothing was ever run."""
    with Server(tmp_path) as server:
        yield server


@pytest.fixture
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """A person's browser, logged in, for one test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    log_in(context, server)
    yield context
    context.close()


@pytest.fixture(scope="package")
def person(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    """A person's browser, logged in, in which every test has a tab. Nothing moves in it: that costs time."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    log_in(context, server)
    yield context
    context.close()


def log_in(context: BrowserContext, server: Server) -> None:
    answer = context.request.post(f"{server.url}/session", data={"token": server.token})
    assert answer.ok, answer.text()


@pytest.fixture
def own_page(browser: Browser, own_server: Server) -> Iterator[Page]:
    """On a server of its own, in a browser that knows no other."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    log_in(context, own_server)
    yield context.new_page()
    context.close()


@pytest.fixture
def own_bar(own_page: Page, own_server: Server) -> Bar:
    return Bar(own_page, own_server)


@pytest.fixture
def page(person: BrowserContext) -> Iterator[Page]:
    """A page in which nothing may go wrong unseen."""
    page = person.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("console", lambda said: mistakes.append(said.text) if "Content Security Policy" in said.text else None)
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()
    assert mistakes == []


@pytest.fixture
def bar(page: Page, tidy_server: Server) -> Bar:
    return Bar(page, tidy_server)


@pytest.fixture
def tidy_server(server: Server) -> Iterator[Server]:
    """The server, on which what a test has started ends with it."""
    before = len(server.started)
    yield server
    server.tidy(before)
