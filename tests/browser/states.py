"""Runs in every state that the page has a picture of, made by what makes them: people, tools, operators, crashes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.error import HTTPError

from tests.browser.served import Server, until

Arrange = Callable[[Server], str]


def begin(server: Server, agent: str, goal: str) -> str:
    """Start a run under this goal, which gets a number if there was one like it: each goal has a log of its own."""
    known = {row["goal"] for row in server.get("/api/runs?limit=500")["runs"]}
    names = (goal if n == 1 else f"{goal} ({n})" for n in range(1, 500))
    made = server.post("/api/runs", agent=agent, goal=next(name for name in names if name not in known))
    return str(made["id"])


def running(server: Server) -> str:
    run = begin(server, "worker", "Which customers will churn next quarter?")
    server.until_calling(run, "score_churn")
    return run


def talking(server: Server) -> str:
    run = begin(server, "talker", "Read the annual report to me")
    server.until_saying(run, 400)
    return run


def pausing(server: Server) -> str:
    return server.told(running(server), "pause", wait=0.1)


def paused(server: Server) -> str:
    return server.told(talking(server), "pause")


def redirecting(server: Server) -> str:
    run = running(server)
    server.post(
        f"/api/runs/{run}/redirect", instruction="Score churn risk of the largest ten", when="next_step", wait=0.1
    )
    return run


def cancelling(server: Server) -> str:
    """Late: the undo of its draft takes its time."""
    run = begin(server, "stubborn", "Prepare the invoices")
    server.until_saying(run)
    server.post(f"/api/runs/{run}/cancel", wait=0.1)
    return run


def waiting(server: Server) -> str:
    run = begin(server, "mailer", "Tell the account team")
    server.until(run, lambda view: view.get("approvals"))
    return run


def doubtful(server: Server) -> str:
    """Its server was killed in the middle of a call, and is back. For a server that only one test uses."""
    run = begin(server, "invoicer", "Send the invoice to Acme")
    until(lambda: "sending" in server.log(run), "the invoice is being sent")
    server.end(9)
    server.begin()
    server.until(run, lambda view: view.get("doubts") and view["doubts"][0].get("checked"))
    return run


def subruns(server: Server) -> str:
    run = begin(server, "boss", "Read both books")
    server.until(run, lambda view: len(view["calls"]) == 2)
    until(lambda: len(server.log(run)) >= 2, "both leaves wait")
    return run


def completed(server: Server) -> str:
    run = begin(server, "writer", "Write the memo")
    server.until_status(run, "completed")
    return run


def failed(server: Server) -> str:
    run = begin(server, "failing", "Add up the revenue")
    server.until_status(run, "failed")
    return run


def cancelled(server: Server) -> str:
    run = running(server)
    server.post(f"/api/runs/{run}/cancel")
    server.post(f"/api/runs/{run}/reason", reason="wrong direction")
    return run


def killed(server: Server) -> str:
    run = running(server)
    server.post("/api/halt", scope="run", name=run, reason="a fire drill")
    server.until_status(run, "killed")
    return run


# fmt: off
WORDS: Final[dict[Arrange, str]] = {
    running:     "Running",
    talking:     "Running",
    pausing:     "Pausing…",
    paused:      "Paused",
    redirecting: "Redirecting…",
    cancelling:  "Cancelling…",
    waiting:     "Waiting for you",
    subruns:     "Running",
    completed:   "Completed",
    failed:      "Failed",
    cancelled:   "Cancelled",
    killed:      "Halted by an operator",
}
# fmt: on


def clear(server: Server) -> None:
    """Nothing a test leaves behind keeps the server busy."""
    for row in server.get("/api/runs?limit=300")["runs"]:
        if row["status"] not in ("completed", "failed", "cancelled", "killed") and not row["parent"]:
            server.open_gate(row["id"])
            with suppress(HTTPError):  # it has ended by itself meanwhile
                server.post(f"/api/runs/{row['id']}/cancel", wait=0)
