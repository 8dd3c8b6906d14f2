"""Two servers over one store in PostgreSQL: whoever comes in at one is in at the other, and reads the same there.

The servers are real, `checkrein serve` twice. One of them drives the run; to the other it is a run of somebody else's.
"""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.shell import until
from tests.server.processes.client import Client, Reading
from tests.server.processes.serving import Place, Server, new_place
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Cluster


class Fronts(NamedTuple):
    place: Place
    here: Server
    there: Server

    @property
    def clients(self) -> list[Client]:
        return [self.here.client, self.there.client]


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Fronts]:
    schema = postgres.new_schema()
    with new_place(tmp_path_factory.mktemp("fronts")) as place:
        place.shell.environment["CHECKREIN_STORE"] = postgres.address(schema)
        yield Fronts(place, place.serve(), place.serve())
    postgres.drop(schema)


def get(server: Server, path: str, cookie: str = "") -> tuple[int, str]:
    """The status, and the session that the answer gives, if any."""
    connection = http.client.HTTPConnection("127.0.0.1", server.client.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status, (answer.getheader("Set-Cookie") or "").partition(";")[0]
    finally:
        connection.close()


def as_at(server: Server, cookie: str) -> str:
    """The same session, under the name of a server on another port: behind a proxy both have one."""
    return f"checkrein_{server.client.port}={cookie.partition('=')[2]}"


def test_a_code_a_session_and_a_token_of_one_server_are_good_at_the_other_and_end_at_both(
    fronts: Fronts,
) -> None:
    """W13: no stickiness is needed, and a revocation is in force everywhere."""
    place, here, there = fronts
    status, cookie = get(there, here.link.removeprefix(f"http://127.0.0.1:{here.client.port}"))
    assert (status, cookie.partition("=")[2][:4]) == (303, "cks_")
    assert get(here, "/api/whoami", as_at(here, cookie))[0] == 200
    assert get(there, "/api/whoami", cookie)[0] == 200
    made = place.shell.do("token", "create", "--role", "viewer", "--owner", "ann", "--json").json[0]
    ann = [Client(one.port, made["token"]) for one in fronts.clients]
    assert [one.ask("GET", "/api/runs").status for one in ann] == [200, 200]

    assert place.shell.do("token", "revoke", made["id"]).code == 0

    until(lambda: [one.ask("GET", "/api/runs").status for one in ann] == [401, 401])
    out = http.client.HTTPConnection("127.0.0.1", here.client.port, timeout=PATIENCE_SECONDS)
    out.request("DELETE", "/session", headers={"Cookie": as_at(here, cookie), "Sec-Fetch-Site": "same-origin"})
    assert out.getresponse().status == 204
    out.close()
    until(lambda: get(there, "/api/whoami", cookie)[0] == 401)


def test_a_stream_ends_at_one_server_soon_after_its_token_was_revoked_at_the_other(
    fronts: Fronts,
) -> None:
    """P7"""
    place, here, there = fronts
    run = here.client.start("talker")
    made = place.shell.do("token", "create", "--role", "operator", "--json").json[0]
    reading = Client(there.client.port, made["token"]).read(f"/api/runs/{run}/live")
    until(lambda: "word2 " in reading.text())

    assert here.client.ask("DELETE", f"/api/tokens/{made['id']}").status == 200

    reading.wait_for_end(PATIENCE_SECONDS)
    assert reading.how == "ended"
    assert here.client.status(run) == "running", "a reader that goes away stops nothing"
    here.client.verb(run, "cancel")


def pieces(reading: Reading) -> dict[str, str]:
    """What was streamed of each call. Every piece begins where the one before it ended."""
    texts: dict[str, str] = {}
    for frame in reading.frames:
        if frame.event == "call.chunk":
            name = f"{frame.data['call']}#{frame.data['attempt']}"
            before = texts.get(name, "")
            assert frame.data["offset"] == len(before), (name, len(before), frame.data)
            texts[name] = before + frame.data["text"]
    return texts


def hashes(reading: Reading) -> dict[str, str]:
    """Of the text of each call, as the driver has recorded it."""
    ends = [frame.data for frame in reading.frames if frame.event == "call.finished"]
    return {f"{end['call']}#1": end["chunk_hash"] for end in ends if end.get("chunk_hash")}


@pytest.mark.parametrize("agent", ["speaker", "talker", "clock"])
def test_text_is_complete_in_order_and_as_recorded_at_the_server_that_does_not_drive_the_run(
    fronts: Fronts, agent: str
) -> None:
    """`speaker` comes to its end, the others are stopped in the middle of a sentence."""
    run = fronts.here.client.start(agent)
    readings = [one.read(f"/api/runs/{run}/events") for one in fronts.clients]
    until(lambda: all(len(reading.text()) > 100 for reading in readings))

    if agent != "speaker":
        assert fronts.there.client.verb(run, "cancel").body["status"] == "cancelled"

    assert [reading.wait_for_end(PATIENCE_SECONDS) for reading in readings] == ["ended", "ended"]
    recorded: dict[str, Any] = hashes(readings[0])
    assert recorded
    assert hashes(readings[1]) == recorded
    for reading in readings:
        said = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in pieces(reading).items()}
        assert said == recorded
