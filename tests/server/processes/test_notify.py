"""`checkrein serve --notify`: a receiver is told, and neither agents nor the terminal see what it is told with."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.cli.shell import until
from tests.server.processes.serving import Place, Server
from tests.support.postgres import Cluster

SECRET = "0123456789abcdef0123456789abcdef"


@contextmanager
def receiving(heard: list[dict[str, Any]]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            heard.append({**body, "signature": self.headers["webhook-signature"]})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook"
        server.shutdown()
        thread.join()


def test_a_server_tells_its_receiver_with_a_secret_that_no_agent_sees(place: Place) -> None:
    place.shell.environment["CHECKREIN_NOTIFY_SECRET"] = SECRET
    heard: list[dict[str, Any]] = []
    with receiving(heard) as url:
        server = place.serve("--notify", url, "--notify-on", "waiting,ended")
        run = server.client.start("quick")
        until(lambda: heard)

        (told,) = heard
        assert (told["run"], told["type"], told["status"]) == (run, "run.ended", "completed")
        assert told["url"] == f"http://127.0.0.1:{server.client.port}/runs/{run}"
        assert told["signature"].startswith("v1,")
        assert "CHECKREIN_NOTIFY_SECRET" not in psutil.Process(server.driver()).environ()
        assert SECRET not in server.started.text
        server.end()


def test_two_fronts_over_one_store_tell_a_thing_once(place: Place, postgres: Cluster) -> None:
    schema = postgres.new_schema()
    place.shell.environment |= {"CHECKREIN_NOTIFY_SECRET": SECRET, "CHECKREIN_STORE": postgres.address(schema)}
    heard: list[dict[str, Any]] = []
    with receiving(heard) as url:
        told = ("--port", "0", "--notify", url, "--notify-on", "ended")
        servers = [Server(place.shell.start("serve", *file, *told)) for file in (("crew.py",), ())]
        runs = [server.client.start("quick") for server in servers for _ in range(3)]
        until(lambda: {one["run"] for one in heard} == set(runs))
        for server in servers:
            assert server.end() == 0
    postgres.drop(schema)

    assert sorted(one["run"] for one in heard) == sorted(runs)


def test_webhooks_without_a_secret_are_refused_before_anything_is_served(place: Place) -> None:
    done = place.shell.do("serve", "crew.py", "--port", "0", "--notify", "http://127.0.0.1:9/hook")

    assert done.code != 0
    assert "error[notify_secret]" in done.err
    assert "openssl rand" in done.err
