"""The page over two servers of one store, behind a proxy that gives each of them every other request.

The servers are real, `checkrein serve` twice over one PostgreSQL. Nothing is sticky: a session is opened at one and is
used at both, and a run that one of them drives is watched and stopped over the other.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.served import PATIENCE_MS
from tests.server.processes.serving import Place, new_place
from tests.support.patience import PATIENCE_SECONDS

AGENTS = """
from checkrein import Agent
from checkrein.models import ScriptedModel

TALK = " ".join(f"word{n}" for n in range(1, 20_000))
talker = Agent("talker", model=ScriptedModel(lambda request: TALK, tokens_per_second=40))
"""


class RoundRobin:
    """A plain HTTP proxy. Each request, not each connection, goes to the next server."""

    def __init__(self, ports: list[int]) -> None:
        self.asked: list[tuple[int, str]] = []
        """Which server was asked, and for what."""
        self._next = cycle(ports)
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_SECONDS)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        self._open.append(client)
        with suppress(OSError), client:
            head, _, body = self._head(client).partition(b"\r\n\r\n")
            if not head:
                return
            announced = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            while announced and len(body) < int(announced[1]):
                body += client.recv(65536)
            port = next(self._next)
            self.asked.append((port, head.split(b"\r\n")[0].decode()))
            # The next request of this browser is to come over a connection of its own.
            plain = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + b"\r\nConnection: close"
            with socket.create_connection(("127.0.0.1", port)) as server:
                self._open.append(server)
                server.sendall(plain + b"\r\n\r\n" + body)
                while data := server.recv(65536):
                    client.sendall(data)

    def _head(self, client: socket.socket) -> bytes:
        found = b""
        while b"\r\n\r\n" not in found and (data := client.recv(65536)):
            found += data
        return found

    def asked_for(self, pattern: str) -> set[int]:
        """Which servers were asked for this."""
        return {port for port, line in self.asked if re.search(pattern, line)}


@contextmanager
def two_fronts(folder: Path, store: str) -> Iterator[tuple[Place, RoundRobin]]:
    with new_place(folder) as place:
        place.file.write_text(AGENTS)
        place.shell.environment["CHECKREIN_STORE"] = store
        proxy = RoundRobin([place.serve().client.port for _ in range(2)])
        try:
            yield place, proxy
        finally:
            proxy.close()


@pytest.fixture
def store(postgres_store: str) -> str:
    return postgres_store


def test_a_person_signs_in_starts_watches_pauses_redirects_cancels_and_signs_out_over_two_servers(
    browser: Browser, tmp_path: Path, store: str
) -> None:
    """P6, P7"""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    status = page.locator("checkrein-bar .status").first
    text = page.locator("section.panel").filter(has=page.get_by_role("heading", name="What it says and does"))
    who = page.get_by_role("heading", name="Who is there?")

    with two_fronts(tmp_path, store) as (place, proxy):
        made = place.shell.do("token", "create", "--role", "controller", "--owner", "ann", "--json").json[0]

        page.goto(proxy.url)
        expect(who).to_be_visible()
        page.get_by_label("Token").fill(made["token"])
        page.keyboard.press("Enter")
        page.get_by_label("What should it do?").fill("Talk.")
        page.keyboard.press("Enter")
        expect(text).to_contain_text("word20 ")

        page.get_by_role("button", name="Pause", exact=True).click()
        expect(status).to_have_text("Paused")
        page.reload()
        expect(status).to_have_text("Paused")
        expect(text).to_contain_text("word20 ")

        page.get_by_role("button", name="Redirect", exact=True).click()
        page.locator("checkrein-bar textarea").fill("Talk about something else.")
        page.get_by_role("button", name="Redirect now", exact=True).click()
        expect(status).to_have_text("Running")
        expect(page.get_by_text("Talk about something else.").first).to_be_visible()

        page.get_by_role("button", name="Cancel", exact=True).click()
        expect(status).to_have_text("Cancelled")
        page.reload()
        expect(status).to_have_text("Cancelled")

        page.get_by_role("button", name="Sign out").click()
        expect(who).to_be_visible()
        page.reload()
        expect(who).to_be_visible()

        page.get_by_label("Token").fill(made["token"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        expect(status).to_have_text("Cancelled")
        assert place.shell.do("token", "revoke", made["id"]).code == 0
        expect(who).to_be_visible()
        page.get_by_label("Token").fill(made["token"])
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("This token is unknown, has expired or was revoked.")

        assert len(proxy.asked_for("/api/runs/")) == 2
        assert len(proxy.asked_for("GET /api/whoami")) == 2
    context.close()
