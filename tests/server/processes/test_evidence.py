"""A real server with a signing key: what it signs by itself, who holds the key, and what no secret is found in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.request import Request, urlopen

import msgspec
import psutil

from checkrein.control.evidence.keys import KnownKeys, SigningKey
from checkrein.control.evidence.log import Statement
from checkrein.control.evidence.verify import WHOLE, verify
from tests.cli.shell import until
from tests.server.processes.client import TOKEN
from tests.server.processes.serving import Place
from tests.support.patience import PATIENCE_SECONDS

CANARY = "Zx8kQ2mLw9Rt4Vb7Nc1Y"
KEY = SigningKey(bytes(range(7, 39)))


def signed(place: Place) -> list[Statement]:
    with closing(sqlite3.connect(place.shell.folder / ".checkrein" / "runs.db")) as db:
        rows = db.execute("SELECT body FROM signed ORDER BY number").fetchall()
    return [msgspec.json.decode(body, type=Statement) for (body,) in rows]


def test_a_stop_is_signed_by_the_front_alone_and_no_secret_is_in_anything(place: Place) -> None:
    """D13, D14: the witness of who holds the key is the process table; of the canaries, every byte that was written."""
    shell = place.shell
    shell.environment |= {"CHECKREIN_SIGNING_KEY": KEY.text(), "BILLING_API_KEY": CANARY}
    server = place.serve()
    base = f"http://127.0.0.1:{server.client.port}"

    def get(path: str) -> bytes:
        asked = Request(base + path, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read())

    run = server.client.start("worker", f"Use {CANARY} for it.")
    shell.saw("first")
    driver = psutil.Process(server.driver())
    for process in (driver, *driver.children(recursive=True)):
        assert "CHECKREIN_SIGNING_KEY" not in process.environ()
        assert KEY.text().encode() not in "\0".join(f"{k}={v}" for k, v in process.environ().items()).encode()
    server.client.verb(run, "cancel", reason=f"it says {CANARY}", wait=30)
    until(lambda: [one.what for one in signed(place) if one.run == run] == ["cancel"])

    bundle = get(f"/api/runs/{run}/evidence?withheld=true")
    finding = verify(bundle, KnownKeys([KEY.fingerprint]))
    assert (finding.code, finding.signed_by) == (WHOLE, KEY.fingerprint), finding.sentence
    assert any(said.startswith("cancel by") for said in finding.stops)

    written = {
        "bundle": bundle,
        "story": get(f"/api/runs/{run}/story"),
        "stops": get("/api/stops") + get("/api/stops?format=csv"),
        "stream": get(f"/api/runs/{run}/events"),
        "metrics": get("/metrics"),
        "log": server.started.text.encode(),
        **{path.name: path.read_bytes() for path in shell.folder.glob(".checkrein/runs.db*") if path.is_file()},
    }
    assert b"[redacted:BILLING_API_KEY]" in written["bundle"]
    for name, body in written.items():
        assert CANARY.encode() not in body, name
        assert TOKEN.encode() not in body, name
        assert KEY.text().encode() not in body, name
    assert {"runs.db", "runs.db-wal"} <= written.keys()
    server.end()
