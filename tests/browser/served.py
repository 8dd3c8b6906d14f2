"""A server and a provider that a test has in its hands: start runs, look at them, read the tools' own logs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from playwright.sync_api import Page

from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import Keys
from checkrein.testing.provider import Reply, Request
from checkrein.testing.provider.server import Address
from tests.browser.agents import gate_of, log_of
from tests.support.agent_tools import lines, times
from tests.support.patience import PATIENCE_SECONDS

PATIENCE_MS: Final = PATIENCE_SECONDS * 1000
"""The same for a page, which counts in milliseconds."""
BETWEEN_SECONDS: Final = 0.05
"""Looking costs the server time, too."""
TOKEN: Final = "crk_" + "t" * 43
ROOT: Final = Path(__file__).parents[2]

View = dict[str, Any]


def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE_SECONDS) -> Any:
    """Look until it is so, and return what it said."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"Not within {seconds} s: {what or condition}"
        time.sleep(BETWEEN_SECONDS)
    return found


def until_heard(page: Page, condition: Callable[[], Any], what: str) -> None:
    """Look until it is so, while what the page tells meanwhile is heard."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends, f"Not within {PATIENCE_SECONDS} s: {what}"
        page.wait_for_timeout(20)


class Server:
    """A server process. It may be killed and started again: folder, port and token stay."""

    def __init__(self, folder: Path, provider: Provider | None = None) -> None:
        self.folder = folder
        self.port = 0
        """Chosen when it begins for the first time."""
        self.url = ""
        self.token = TOKEN
        self._provider = provider
        self._process: subprocess.Popen[bytes] | None = None
        self._goals = 0
        self._files = ""
        self.started: list[str] = []

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        env = dict(os.environ, PYTHONPATH=f"{ROOT}/src{os.pathsep}{ROOT}")
        if self._provider is not None:
            env |= {"OPENAI_BASE_URL": self._provider.address.openai_url, "OPENAI_API_KEY": self._provider.address.key}
        file = self.folder / "port"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.browser.serving", str(self.folder), str(self.port), self.token]
        self._process = subprocess.Popen(command, env=env, cwd=ROOT)
        until(lambda: file.exists() or self._has_ended(), "the server listens")
        self.port = int(file.read_text())
        self.url = f"http://127.0.0.1:{self.port}"
        until(self._answers, "the server answers")

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def end(self, how: int = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _answers(self) -> bool:
        assert not self._has_ended(), "the server has ended"
        try:
            return bool(self.get("/healthz") is not None)
        except OSError:
            return False

    # -- HTTP

    def get(self, path: str) -> Any:
        return self._ask("GET", path)

    def post(self, path: str, **body: Any) -> Any:
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text and answer.headers.get_content_type() == "application/json" else text

    def script(self, name: str) -> str:
        """Where the page loads this file from: an address that a browser keeps, so that each asks for it once."""
        if not self._files:
            found = re.search(r'"(/ui/v-[0-9a-f]+/)app\.js"', self.get("/").decode())
            assert found is not None
            self._files = found[1]
        return self._files + name

    # -- runs

    def start(self, agent: str, goal: str = "", **more: Any) -> str:
        """Start a run under a goal that no other has, and return its id."""
        self._goals += 1
        made = self.post("/api/runs", agent=agent, goal=f"{goal or agent} {self._goals}", **more)
        self.started.append(str(made["id"]))
        return self.started[-1]

    def start_for_a_viewer(self, agent: str) -> tuple[str, str]:
        """Start a run, and return its id and the token of somebody who may only look at it."""
        keys = Keys(self.folder / "access")
        (_, hers), (_, looks) = (keys.create(role=role, owner="ann") for role in (Role.CONTROLLER, Role.VIEWER))
        keys.close()
        operators, self.token = self.token, hers
        run = self.start(agent)
        self.token = operators
        return run, looks

    def tidy(self, since: int = 0) -> None:
        """Cancel what was started since then, so that nothing a test leaves behind keeps the machine busy."""
        for run in self.started[since:]:
            self.open_gate(run)
            with suppress(urllib.error.HTTPError):  # it has ended already
                self.post(f"/api/runs/{run}/cancel", wait=0)
        del self.started[since:]

    def view(self, run: str) -> View:
        found: View = self.get(f"/api/runs/{run}")
        return found

    def until(self, run: str, condition: Callable[[View], Any]) -> View:
        """Look at a run until `condition` holds for it, and return it."""
        seen: list[View] = []

        def holds() -> Any:
            seen[:] = [self.view(run)]
            return condition(seen[0])

        try:
            until(holds)
        except AssertionError:
            raise AssertionError(f"run {run} is {seen[0]['status']}: {json.dumps(seen[0], indent=1)[:4000]}") from None
        return seen[0]

    def until_status(self, run: str, *wanted: str) -> View:
        return self.until(run, lambda view: view["status"] in wanted)

    def until_calling(self, run: str, name: str) -> View:
        """Until this tool is at work, by its own word."""
        view = self.until(run, lambda view: any(call["name"] == name for call in view.get("calls", ())))
        until(lambda: len(self.log(run)) > 0, f"{name} has begun")
        return view

    def until_saying(self, run: str, chars: int = 20) -> View:
        return self.until(run, lambda view: any(len(call.get("text", "")) >= chars for call in view.get("calls", ())))

    def talking(self, agent: str = "talker") -> str:
        """A new run, which has begun to say something."""
        run = self.start(agent)
        self.until_saying(run)
        return run

    def told(self, run: str, verb: str, **given: Any) -> str:
        """The run, once this was asked of it."""
        self.post(f"/api/runs/{run}/{verb}", **given)
        return run

    def log(self, run: str) -> list[str]:
        """What the run's tools wrote into their own log."""
        return lines(log_of(self.folder, self.view(run)["goal"]))

    def times(self, run: str, word: str) -> list[float]:
        return times(log_of(self.folder, self.view(run)["goal"]), word)

    def open_gate(self, run: str, which: str = "") -> None:
        """Let a tool go on that waits."""
        Path(f"{gate_of(self.folder, self.view(run)['goal'])}{which}").touch()


class Provider:
    """A model provider in a process of its own: the witness of what was asked, and of when a connection closed."""

    def __init__(self, folder: Path, scenario: list[Reply]) -> None:
        file = folder / "scenario.json"
        file.write_bytes(msgspec.json.encode(scenario))
        command = [sys.executable, "-m", "checkrein.testing.provider", "--scenario", str(file), "--with-stdin"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=f"{ROOT}/src")
        )
        assert self._process.stdout is not None
        self.address = msgspec.json.decode(self._process.stdout.readline(), type=Address)

    def log(self) -> list[Request]:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.address.port}/_log?bodies=1", timeout=PATIENCE_SECONDS
        ) as answer:
            return msgspec.json.decode(answer.read(), type=list[Request])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._process.stdout.close()
