"""A client for tests: plain HTTP with a token, and streams that are read in a thread."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

from tests.support.patience import PATIENCE_SECONDS

TOKEN = "ckr_for-tests-only-0123456789abcdefghijklmnop"


class Answer(NamedTuple):
    status: int
    body: Any
    seconds: float


class Client:
    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.port = port
        self._headers = {"Authorization": f"Bearer {token}"}

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return Answer(response.status, json.loads(text) if is_json else text.decode(), time.monotonic() - began)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def start(self, agent: str, goal: str = "Do it.", **more: Any) -> str:
        answer = self.ask("POST", "/api/runs", {"agent": agent, "goal": goal, **more})
        assert answer.status == 201, answer
        return str(answer.body["id"])

    def verb(self, run: str, verb: str, **body: Any) -> Answer:
        return self.ask("POST", f"/api/runs/{run}/{verb}", body)

    def view(self, run: str) -> Any:
        return self.get(f"/api/runs/{run}")

    def status(self, run: str) -> str:
        return str(self.view(run)["status"])

    def read(self, path: str) -> Reading:
        return Reading(self.port, path, self._headers)


class Frame(NamedTuple):
    event: str
    data: Any
    at: float


class Reading:
    """A stream that is being read, from the moment it is made."""

    def __init__(self, port: int, path: str, headers: dict[str, str]) -> None:
        self.frames: list[Frame] = []
        self.how = ""
        """How it ended: `ended` in order, or what went wrong."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._connection.request("GET", path, headers=headers)
        self._socket = self._connection.sock
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        fields: dict[str, str] = {}
        try:
            for raw in self._response:
                line = raw.decode().rstrip("\n")
                name, _, value = line.partition(": ")
                if name in ("event", "data"):
                    fields[name] = value
                elif not line and fields:
                    self.frames.append(Frame(fields.get("event", ""), json.loads(fields["data"]), time.time()))
                    fields = {}
            self.how = "ended"
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            self.how = f"{type(error).__name__}: {error}"

    def text(self) -> str:
        return "".join(frame.data["text"] for frame in self.frames if frame.event == "call.chunk")

    def wait_for_end(self, seconds: float) -> str:
        self._thread.join(seconds)
        self.close()
        return self.how

    def close(self) -> None:
        """Leave, as a browser does whose tab is closed."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_SECONDS)
        self._response.close()
        self._connection.close()
