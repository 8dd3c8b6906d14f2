"""The HTTP API: starting, looking, steering; and what it says to what cannot be meant."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from checkrein import Agent, Run, Runtime, Turns
from checkrein.agents.tool import Tool
from checkrein.control.viewer import look
from checkrein.core.events import VerbAccepted
from checkrein.errors import StoreFull, StoreUnavailable
from checkrein.journal import Journal
from checkrein.models import ScriptedModel, Turn
from checkrein.processes import halt_flags
from checkrein.server import backend
from tests.server.serving import Client, app_over, begun, serving
from tests.support.abort_tools import draft, work
from tests.support.agent_tools import lines, wire_money
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

LONG = sentences(200)


def talker(pace: float = 50.0, name: str = "talker") -> Agent:
    return Agent(name, model=ScriptedModel(lambda _: Turn(LONG), tokens_per_second=pace), stop_when=Turns(5))


def quick(name: str = "quick", says: str = "Done.") -> Agent:
    return Agent(name, model=ScriptedModel(lambda _: Turn(says)))


def drafter(witness: Witness) -> Agent:
    """Makes a draft that a cancel discards, and then works for long."""
    turns = [
        Turn("First a draft.", calls=[("draft", {"log": witness.log})]),
        Turn("Now I work.", calls=[("work", {"log": witness.log, "seconds": 60})]),
        Turn("Done."),
    ]
    return Agent("drafter", model=ScriptedModel(turns), tools=[draft, work])


def payer(witness: Witness) -> Agent:
    turns = [Turn("I pay.", calls=[("wire_money", {"log": witness.log})]), Turn("Paid.")]
    return Agent("payer", model=ScriptedModel(turns), tools=[wire_money])


# -- agents and runs


async def asking(client: Client, runtime: Runtime, witness: Witness) -> tuple[str, dict[str, Any]]:
    """The id of a run of `payer`, and what is shown of it once it waits for an approval."""
    runtime.add(payer(witness))
    run = await client.start("payer")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (view := (await client.get(f"/api/runs/{run}"))[1])["approvals"]:
            await asyncio.sleep(0.02)
    return run, view


async def drafting(client: Client, runtime: Runtime, witness: Witness, word: str) -> str:
    """The id of a run of `drafter`, once a tool of it has written `word`."""
    runtime.add(drafter(witness))
    run = await client.start("drafter")
    await witness.saw(word)
    return run


async def test_a_run_at_work_is_forked_over_http(client: Client, runtime: Runtime, witness: Witness) -> None:
    origin = await drafting(client, runtime, witness, "work")

    status, fork = await client.post(f"/api/runs/{origin}/fork", {"at": 1, "instruction": "only Q3"})
    early, unfinished = await client.post(f"/api/runs/{origin}/fork", {"at": 2})
    unmeant, _ = await client.post(f"/api/runs/{origin}/fork", {"at": 0})
    unknown, _ = await client.post("/api/runs/r-none/fork", {"at": 1})
    await witness.saw("work", times=2)

    assert (status, early, unmeant, unknown) == (201, 409, 422, 404)
    assert unfinished["code"] == "step_not_finished"
    assert fork["forked_from"]["run"] == origin
    assert [effect["now"] for effect in fork["forked_from"]["effects"]] == ["open"]
    assert len(witness.lines("draft")) == 1, "it is not drafted again"
    for run in (origin, fork["id"]):
        await client.post(f"/api/runs/{run}/cancel")


async def test_agents_are_listed_with_their_tools_and_caps(client: Client, runtime: Runtime, witness: Witness) -> None:
    runtime.add(drafter(witness))
    runtime.add(talker())

    status, told = await client.get("/api/agents")

    assert status == 200
    cards = {card["name"]: card for card in told["agents"]}
    assert cards["drafter"]["tools"] == ["draft", "work"]
    assert cards["talker"]["stop_when"] == {"when": "turns", "n": 5}


async def test_an_agent_is_listed_with_what_its_author_should_mend(client: Client, runtime: Runtime) -> None:
    def careless() -> None:
        """Says nothing of itself."""

    warned = Tool(careless, isolation="thread")
    runtime.add(Agent("risky", model=ScriptedModel(["Done."]), tools=[warned]))

    _, told = await client.get("/api/agents")

    (card,) = told["agents"]
    assert card["warnings"] == [f"careless {one.what}. {one.why}" for one in warned.warnings()]
    assert len(card["warnings"]) == 2


async def test_a_run_is_started_and_looks_as_control_sees_it(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())

    status, started = await client.post("/api/runs", {"agent": "quick", "goal": "Say something."})
    view = await client.until(started["id"], "completed")

    assert status == 201
    assert started["goal"] == "Say something."
    seen = await look(runtime.journal, started["id"], at=view["at"])
    assert view["result"] == seen.result == "Done."
    assert (view["seq"], view["ticking"]) == (seen.seq, False)
    assert {"id", "status", "waiting", "agent", "goal", "thread", "steps", "calls", "effects", "usage", "caps"} <= set(
        view
    )
    assert {"elapsed_seconds", "controls", "receipts", "result"} <= set(view)


async def test_the_location_of_a_new_run_is_said(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())

    async with client.session.post(f"{client.base}/api/runs", json={"agent": "quick", "goal": "go"}) as told:
        run = (await told.json())["id"]

        assert told.headers["location"] == f"/api/runs/{run}"


async def test_runs_are_listed_newest_first_and_page_by_page(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    runs = [await client.start("quick", f"goal {n}") for n in range(5)]
    for run in runs:
        await client.until(run, "completed")

    _, first = await client.get("/api/runs", params={"limit": 3})
    _, second = await client.get("/api/runs", params={"limit": 3, "before": first["runs"][-1]["id"]})

    assert [row["id"] for row in first["runs"] + second["runs"]] == runs[::-1]
    assert (first["more"], second["more"]) == (True, False)
    assert first["runs"][0]["usage"]["model_calls"] == 1


async def test_the_list_can_be_narrowed(client: Client, runtime: Runtime, witness: Witness) -> None:
    for one in (quick(), talker(), payer(witness)):
        runtime.add(one)
    done, talking, paying = await client.start("quick"), await client.start("talker"), await client.start("payer")
    await client.until(done, "completed")
    await client.until(talking, "running")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await client.get(f"/api/runs/{paying}"))[1]["waiting"]:
            await asyncio.sleep(0.02)

    async def ids(**params: Any) -> list[str]:
        return [row["id"] for row in (await client.get("/api/runs", params=params))[1]["runs"]]

    assert await ids(agent="quick") == [done]
    assert await ids(status="completed") == [done]
    assert await ids(thread=talking) == [talking]
    assert await ids(waiting="1") == [paying]
    waiting = (await client.get("/api/runs", params={"waiting": "1"}))[1]["runs"][0]
    assert waiting["waiting_for"][0]["what"] == "approve wire_money"


async def test_a_run_that_ended_is_continued_on_its_thread(client: Client, runtime: Runtime) -> None:
    """D6."""
    runtime.add(quick())
    first = await client.start("quick")
    await client.until(first, "completed")

    status, second = await client.post("/api/runs", {"agent": "quick", "continues": first})

    assert status == 201
    assert (second["thread"], second["continues"]) == (first, first)


async def test_a_busy_thread_queues_refuses_or_redirects(client: Client, runtime: Runtime) -> None:
    """D38."""
    runtime.add(talker())
    first = await client.start("talker", thread="t")
    await client.until(first, "running")

    queued = await client.post("/api/runs", {"agent": "talker", "goal": "next", "thread": "t"})
    refused = await client.post("/api/runs", {"agent": "talker", "goal": "no", "thread": "t", "if_busy": "refuse"})
    redirected = await client.post("/api/runs", {"agent": "talker", "goal": "so", "thread": "t", "if_busy": "redirect"})

    assert (queued[0], queued[1]["status"]) == (201, "queued")
    assert (refused[0], refused[1]["code"], refused[1]["run"]) == (409, "thread_busy", first)
    assert redirected[1]["id"] == first


async def test_a_call_is_shown_whole_with_its_text_as_safe_markdown(client: Client, runtime: Runtime) -> None:
    runtime.add(quick(says="**Bold** <script>alert(1)</script> ![x](http://evil.example/x.png) [a](javascript:x)"))
    run = await client.start("quick")
    view = await client.until(run, "completed")

    status, call = await client.get(f"/api/runs/{run}/calls/{view['calls'][0]['id']}")

    assert status == 200
    assert call["text"].startswith("**Bold**")
    assert "<strong>Bold</strong>" in call["html"]
    assert "<script" not in call["html"]
    assert "<img" not in call["html"]
    assert "<a" not in call["html"]


# -- verbs


async def test_a_cancel_answers_with_its_receipt_and_the_draft_is_discarded(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    """D1, D5, D22, D33: the tool's own log is the witness."""
    run = await drafting(client, runtime, witness, "draft made")

    status, receipt = await client.post(f"/api/runs/{run}/cancel", {"reason": "wrong direction"})

    assert status == 200
    assert (receipt["verb"], receipt["status"], receipt["reason"]) == ("cancel", "cancelled", "wrong direction")
    assert receipt["tokens_after_stop"] == 0
    assert [effect["now"] for effect in receipt["effects"] if effect["what"] == "draft"] == ["undone"]
    assert witness.words().count("undo draft") == 1
    assert await witness.is_quiet()


async def test_pause_resume_and_redirect_answer_with_receipts(client: Client, runtime: Runtime) -> None:
    """D20, D23, D32."""
    run = await begun(client, runtime, talker(), "running")

    pause = await client.post(f"/api/runs/{run}/pause")
    resume = await client.post(f"/api/runs/{run}/resume", {"instruction": "only Q3"})
    await client.until(run, "running")
    redirect = await client.post(f"/api/runs/{run}/redirect", {"instruction": "only Q4", "when": "now"})

    assert [(status, told["verb"]) for status, told in (pause, resume, redirect)] == [
        (200, "pause"),
        (200, "resume"),
        (200, "redirect"),
    ]
    _, view = await client.get(f"/api/runs/{run}")
    assert [one["text"] for one in view["instructions"]] == ["only Q3", "only Q4"]
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_verb_that_takes_longer_than_the_wait_says_what_it_waits_for(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    run = await drafting(client, runtime, witness, "work")

    status, told = await client.post(f"/api/runs/{run}/pause", {"wait": 0.2})
    _, view = await client.get(f"/api/runs/{run}")
    call = next(call["id"] for call in view["calls"] if call["name"] == "work")
    aborted = await client.post(f"/api/runs/{run}/calls/{call}/abort")

    assert status == 202
    assert told["status"] == "pausing"
    assert "work" in told["waiting_for"]
    assert view["settling"][0]["verb"] == "pause"
    assert aborted[0] == 200
    await client.until(run, "paused")


async def test_a_question_is_answered_while_the_run_goes_on(client: Client, runtime: Runtime) -> None:
    def think(request: Any) -> Turn:
        return Turn("Half way.") if "How far" in str(request.messages[-1]) else Turn(LONG)

    run = await begun(client, runtime, Agent("talker", model=ScriptedModel(think, tokens_per_second=50)), "running")

    status, receipt = await client.post(f"/api/runs/{run}/ask", {"question": "How far?", "wait": 30})

    assert status == 200
    assert receipt["answer"] == "Half way."
    assert (await client.get(f"/api/runs/{run}"))[1]["status"] == "running"
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_repeat_of_a_request_is_not_done_twice_and_gets_the_same_receipt(
    client: Client, runtime: Runtime
) -> None:
    run = await begun(client, runtime, talker(), "running")
    body = {"request_id": "click-00000001"}

    first, second = await client.post(f"/api/runs/{run}/pause", body), await client.post(f"/api/runs/{run}/pause", body)
    for_another = await client.post(f"/api/runs/{run}/resume", body)

    assert first == second
    assert (for_another[0], for_another[1]["code"]) == (409, "request_id_used")
    verbs = [r.event for r in await runtime.journal.read(run) if isinstance(r.event, VerbAccepted)]
    assert len(verbs) == 1
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_stale_click_is_refused_but_never_a_stop(client: Client, runtime: Runtime) -> None:
    run = await begun(client, runtime, talker(), "running")
    seen = (await client.get(f"/api/runs/{run}"))[1]["status_seq"]
    await client.post(f"/api/runs/{run}/pause")

    stale = await client.post(f"/api/runs/{run}/resume", {"expected_seq": seen})
    stop = await client.post(f"/api/runs/{run}/cancel", {"expected_seq": seen})

    assert (stale[0], stale[1]["code"], stale[1]["status"]) == (409, "stale", "paused")
    assert stop[0] == 200


async def test_a_refused_verb_says_how_the_run_ended(client: Client, runtime: Runtime) -> None:
    """D7."""
    run = await begun(client, runtime, quick(), "completed")

    for verb, body in [("pause", {}), ("resume", {}), ("redirect", {"instruction": "x"})]:
        status, told = await client.post(f"/api/runs/{run}/{verb}", body)

        assert (status, told["code"], told["status"], told["run"]) == (409, "finished", "completed", run)
        assert "completed" in told["message"]


async def test_a_reason_is_added_after_the_stop(client: Client, runtime: Runtime) -> None:
    run = await begun(client, runtime, quick(), "completed")

    status, _ = await client.post(f"/api/runs/{run}/reason", {"reason": "too expensive", "note": "by far"})

    assert status == 204
    _, view = await client.get(f"/api/runs/{run}")
    assert [(one["reason"], one["note"], one["by"]) for one in view["reasons"]] == [("too expensive", "by far", "you")]


async def test_an_approval_is_given_once_and_by_name(client: Client, runtime: Runtime, witness: Witness) -> None:
    run, view = await asking(client, runtime, witness)
    call = view["approvals"][0]["call"]

    status, told = await client.post(f"/api/runs/{run}/calls/{call}/approve", {"note": "fine"})
    await client.until(run, "completed")
    again, refused = await client.post(f"/api/runs/{run}/calls/{call}/deny")

    assert (status, told["id"]) == (200, call)
    assert (again, refused["code"]) == (409, "finished")


async def test_a_decision_that_is_made_again_with_its_id_is_answered_and_taken_once(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    run, view = await asking(client, runtime, witness)
    call = view["approvals"][0]["call"]
    body = {"note": "fine", "request_id": "click-00000001"}

    first, told = await client.post(f"/api/runs/{run}/calls/{call}/approve", body)
    await client.until(run, "completed")
    second, again = await client.post(f"/api/runs/{run}/calls/{call}/approve", body)
    for_another = await client.post(f"/api/runs/{run}/calls/{call}/deny", body)

    assert (first, second) == (200, 200)
    assert told["id"] == again["id"] == call
    assert (for_another[0], for_another[1]["code"]) == (409, "request_id_used")
    assert lines(witness.log) == ["wired"]


async def test_a_reason_that_is_sent_again_with_its_id_is_written_down_once(client: Client, runtime: Runtime) -> None:
    run = await begun(client, runtime, quick(), "completed")
    body = {"reason": "too expensive", "request_id": "click-00000001"}

    answers = [await client.post(f"/api/runs/{run}/reason", body) for _ in range(2)]

    assert answers == [(204, None)] * 2
    assert len((await client.get(f"/api/runs/{run}"))[1]["reasons"]) == 1


async def test_a_denied_call_is_not_made(client: Client, runtime: Runtime, witness: Witness) -> None:
    run, view = await asking(client, runtime, witness)

    status, told = await client.post(f"/api/runs/{run}/calls/{view['approvals'][0]['call']}/deny")
    await client.until(run, "completed")

    assert (status, told["now"]) == (200, "denied")
    assert witness.words() == []


# -- who


async def test_somebody_elses_run_is_answered_exactly_like_an_unknown_one(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    hers = {"who": "ada:controller:ada"}
    run = (await client.post("/api/runs", {"agent": "talker", "goal": "go"}, headers=hers))[1]["id"]
    await client.until(run, "running")
    looks = ["", "/events", "/live", "/calls/c1"]
    about_calls = [f"/calls/c1/{verb}" for verb in ("approve", "deny", "resolve", "abort", "retry_undo")]
    verbs = ["/pause", "/resume", "/redirect", "/cancel", "/ask", "/reason", *about_calls]

    for path in (*looks, *verbs):
        his = {"headers": {"who": "bob:controller:bob"}}
        ask = client.get if path in looks else client.post
        other = await ask(f"/api/runs/{run}{path}", **his)
        unknown = await ask(f"/api/runs/r-000000000000{path}", **his)

        assert other[0] == unknown[0] == 404
        assert str(other[1]).replace(run, "r-000000000000") == str(unknown[1])
    assert (await client.get("/api/runs", headers={"who": "bob:viewer:bob"}))[1]["runs"] == []
    assert (await client.get(f"/api/runs/{run}", headers=hers))[1]["status"] == "running"
    await client.post(f"/api/runs/{run}/cancel", headers=hers)


async def test_a_viewer_sees_and_may_do_nothing(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    run = (await client.post("/api/runs", {"agent": "talker", "goal": "go"}, headers={"who": "a:controller:a"}))[1][
        "id"
    ]
    viewer = {"headers": {"who": "v:viewer:a"}}

    assert (await client.get(f"/api/runs/{run}", **viewer))[0] == 200
    for path in ("/pause", "/cancel", "/redirect", "/reason", "/calls/c1/approve"):
        status, told = await client.post(f"/api/runs/{run}{path}", **viewer)
        assert (status, told["code"]) == (403, "forbidden")
    assert (await client.post("/api/runs", {"agent": "talker", "goal": "x"}, **viewer))[0] == 403
    assert (await client.post("/api/halt", {"scope": "all"}, headers={"who": "a:controller:a"}))[0] == 403
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_thread_of_the_same_name_is_another_one_for_another_owner(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    hers, his = ({"headers": {"who": f"{name}:controller:{name}"}} for name in ("ada", "bob"))
    body = {"agent": "talker", "goal": "secret", "thread": "t"}
    run = (await client.post("/api/runs", body, **hers))[1]["id"]

    his_own, told = await client.post("/api/runs", {**body, "goal": "x", "if_busy": "refuse"}, **his)
    redirected = await client.post("/api/runs", {**body, "goal": "y", "if_busy": "redirect"}, **his)
    assert (his_own, redirected[0], redirected[1]["id"]) == (201, 201, told["id"])
    assert told["id"] != run
    continued = await client.post("/api/runs", {"agent": "talker", "goal": "x", "continues": run}, **his)

    assert continued[0] == 404
    state = await runtime.journal.load(run)
    assert (state.goal, state.instruction) == ("secret", None)
    for row in await runtime.journal.runs():
        await client.post(f"/api/runs/{row.id}/cancel")


async def test_a_thread_named_like_somebodys_run_does_not_tell_whether_there_is_one(
    client: Client, runtime: Runtime
) -> None:
    """A run without a thread of its own is on one that is called like it."""
    runtime.add(talker())
    hers, his = ({"headers": {"who": f"{name}:controller:{name}"}} for name in ("ada", "bob"))
    run = (await client.post("/api/runs", {"agent": "talker", "goal": "secret"}, **hers))[1]["id"]

    answers = []
    for thread in (run, "r-000000000000"):
        for if_busy in ("refuse", "redirect", "queue"):
            body = {"agent": "talker", "goal": "x", "thread": thread, "if_busy": if_busy}
            status, told = await client.post("/api/runs", body, **his)
            listed = await client.get("/api/runs", params={"thread": thread}, **his)
            answers.append((status, told.get("code"), told.get("thread") == thread, len(listed[1]["runs"])))
    assert answers[:3] == answers[3:]

    state = await runtime.journal.load(run)
    assert (state.owner, state.goal, state.instruction) == ("ada", "secret", None)
    for row in await runtime.journal.runs():
        await client.post(f"/api/runs/{row.id}/cancel")


async def test_who_has_no_owner_has_no_threads(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    nobodys = {"headers": {"who": "eve:controller:"}}

    status, told = await client.post("/api/runs", {"agent": "quick", "goal": "x", "thread": "t"}, **nobodys)

    assert (status, told["code"]) == (403, "forbidden")


async def test_a_run_that_continues_another_belongs_to_the_same_owner(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    hers = {"headers": {"who": "ada:controller:ada"}}
    run = (await client.post("/api/runs", {"agent": "quick", "goal": "first"}, **hers))[1]["id"]
    await Run(runtime, run).result()

    status, told = await client.post("/api/runs", {"agent": "quick", "goal": "more", "continues": run})

    assert status == 201, "an operator may continue what anybody began"
    assert (await runtime.journal.load(told["id"])).owner == "ada"
    assert (await client.get(f"/api/runs/{told['id']}", **hers))[0] == 200


# -- what cannot be meant


UNMEANT = [
    ("/api/runs", b"{", "invalid"),
    ("/api/runs", b"[]", "invalid"),
    ("/api/runs", b'"x"', "invalid"),
    ("/api/runs", b"\xff\xfe", "invalid"),
    ("/api/runs", b'{"agent": "quick"}', "misuse"),
    ("/api/runs", b'{"agent": "quick", "goal": "  "}', "misuse"),
    ("/api/runs", b'{"agent": "nobody", "goal": "x"}', "unknown_agent"),
    ("/api/runs", b'{"agent": "quick", "goal": 7}', "invalid"),
    ("/api/runs", b'{"agent": "quick", "goal": "\\ud800"}', "invalid"),
    ("/api/runs", b'{"agent": "quick", "goal": "x", "if_busy": "wait"}', "invalid"),
    ("/api/runs", b'{"agent": "quick", "goal": "x", "thraed": "t"}', "invalid"),
    ("/api/runs", b'{"agent": "quick", "goal": "x", "thread": "t", "continues": "r"}', "invalid"),
    ("/api/runs", b"[" * 10_000, "invalid"),
    ("/api/runs/{run}/cancel", b'{"undoo": "none"}', "invalid"),
    ("/api/runs/{run}/cancel", b'{"undo": "some"}', "invalid"),
    ("/api/runs/{run}/cancel", b'{"wait": -1}', "invalid"),
    ("/api/runs/{run}/cancel", b'{"wait": 1e999}', "invalid"),
    ("/api/runs/{run}/cancel", b'{"request_id": "a b"}', "invalid"),
    ("/api/runs/{run}/redirect", b"{}", "invalid"),
    ("/api/runs/{run}/redirect", b'{"instruction": null}', "invalid"),
    ("/api/runs/{run}/resume", b'{"expected_seq": "1"}', "invalid"),
    ("/api/runs/{run}/reason", b'{"reason": ""}', "invalid"),
    ("/api/runs/{run}/calls/c1/resolve", b'{"outcome": "perhaps"}', "invalid"),
    ("/api/halt", b'{"scope": "galaxy"}', "invalid"),
    ("/api/halt", b'{"scope": "agent"}', "misuse"),
]


async def test_a_body_that_cannot_be_meant_is_a_422_with_one_sentence(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    run = await client.start("quick")
    headers = {"content-type": "application/json"}

    for path, body, code in UNMEANT:
        status, told = await client.post(path.format(run=run), data=body, headers=headers)

        assert (status, told["code"]) == (422, code), (path, body)
        assert told["message"].endswith("."), told
        assert "\n" not in told["message"], told
    assert await runtime.journal.fences() == ()


NOT_THERE = [
    ("/api/runs/r-none", 404, "run_not_found"),
    ("/api/runs/r-none/events", 404, "run_not_found"),
    ("/api/runs/r-none/live", 404, "run_not_found"),
    ("/api/runs/{run}/calls/c99", 404, "call_not_found"),
    ("/api/runs/{run}/events?after=-1", 422, "invalid"),
    ("/api/runs/{run}/events?after=x", 422, "invalid"),
    ("/api/runs?status=sleeping", 422, "invalid"),
    ("/api/runs?limit=0", 422, "invalid"),
    ("/api/runs?before=r-none", 404, "run_not_found"),
    ("/api/nothing", 404, "not_found"),
    ("/api/runs/{run}/pause", 405, "method_not_allowed"),
    ("/ui/nothing.js", 404, "not_found"),
]


async def test_what_there_is_not_is_said_in_the_same_form(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    run = await client.start("quick")

    for path, status, code in NOT_THERE:
        answered, told = await client.get(path.format(run=run))

        assert (answered, told["code"]) == (status, code), path
        assert told["message"].endswith("."), told


@pytest.mark.parametrize("verb", ["approve", "deny", "resolve", "abort", "retry_undo"])
async def test_a_verb_about_a_call_that_there_is_not_is_a_404(client: Client, runtime: Runtime, verb: str) -> None:
    run = await begun(client, runtime, talker(), "running")
    body = {"outcome": "happened"} if verb == "resolve" else {}

    status, told = await client.post(f"/api/runs/{run}/calls/c99/{verb}", body)

    assert (status, told["code"], told["call"]) == (404, "call_not_found", "c99")
    await client.post(f"/api/runs/{run}/cancel")


@pytest.mark.parametrize(
    ("error", "code"),
    [(StoreFull("The disk is full."), "store_full"), (StoreUnavailable("It cannot be asked."), "store_unavailable")],
)
async def test_a_store_that_cannot_answer_is_a_503_with_a_time_to_come_back(
    client: Client, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str
) -> None:
    runtime.add(quick())

    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(runtime.journal), "create", fail)
    async with client.session.post(f"{client.base}/api/runs", json={"agent": "quick", "goal": "go"}) as told:
        assert told.status == 503
        assert (await told.json())["code"] == code
        assert int(told.headers["retry-after"]) >= 1


async def test_a_mistake_of_ours_shows_no_stack_trace(
    client: Client, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "/secret/path", os.getpid())

    monkeypatch.setattr(type(runtime.journal), "runs", fail)
    status, told = await client.get("/api/runs")

    assert (status, told["code"]) == (500, "internal")
    assert "secret" not in str(told)
    assert "Traceback" not in str(told)


async def test_a_text_that_holds_anything_is_kept_to_the_letter(client: Client, runtime: Runtime) -> None:
    runtime.add(quick())
    goal = 'nul \0 tab \t line \n quote " back \\ bell \x07 esc \x1b[31m smile 😀 sep \u2028 bidi \u202e'

    run = await client.start("quick", goal)

    assert (await client.get(f"/api/runs/{run}"))[1]["goal"] == goal


# -- the kill switch


async def test_an_operator_halts_an_agent_and_resets_it(client: Client, runtime: Runtime, witness: Witness) -> None:
    """D35."""
    run = await drafting(client, runtime, witness, "work")

    status, halted = await client.post("/api/halt", {"scope": "agent", "name": "drafter", "reason": "runaway"})
    refused = await client.post("/api/runs", {"agent": "drafter", "goal": "again"})
    reset = await client.post("/api/reset", {"scope": "agent", "name": "drafter"})

    assert status == 200
    assert [receipt["run"] for receipt in halted["receipts"]] == [run]
    assert (halted["unconfirmed"], halted["missed"]) == ([], [])
    assert await witness.is_quiet()
    assert (refused[0], refused[1]["code"]) == (409, "fenced")
    assert (reset[0], reset[1]["was_latched"]) == (200, True)
    assert (await client.get(f"/api/runs/{run}"))[1]["status"] == "killed"


async def test_with_the_store_away_a_halt_puts_up_the_flag_of_this_host_and_says_so(
    client: Client, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D35: the witness is the flag, as whoever drives on this host reads it."""

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("The store is away.")

    monkeypatch.setattr(type(runtime.journal), "fence", fail)
    status, told = await client.post("/api/halt", {"scope": "agent", "name": "drafter", "reason": "runaway"})

    flags = [(one.scope, one.name, one.by, one.reason) for one in halt_flags.read(runtime.store)]
    monkeypatch.undo()
    again, _ = await client.post("/api/halt", {"scope": "agent", "name": "drafter"})
    (flag,) = halt_flags.read(runtime.store)
    halt_flags.take_down(runtime.store, "agent", "drafter")
    (recorded,) = await runtime.journal.operations()
    assert (again, flag.id) == (200, recorded.operation.id), "a reset at any front takes it down"
    assert (status, told["code"]) == (503, "halted_here_only")
    assert "only, by a flag; halt it again when the store answers" in told["message"]
    assert flags == [("agent", "drafter", "you", "runaway")]


async def test_a_halt_of_a_run_that_there_is_not_is_a_404(client: Client) -> None:
    status, told = await client.post("/api/halt", {"scope": "run", "name": "r-none"})

    assert (status, told["code"]) == (404, "run_not_found")


# -- a client that goes away


@pytest.fixture
async def two_servers(runtime: Runtime) -> AsyncIterator[tuple[Client, Client]]:
    async with serving(app_over(runtime)) as one, serving(app_over(runtime)) as other:
        yield one, other


async def test_what_one_server_is_told_another_one_on_the_same_store_shows(
    two_servers: tuple[Client, Client], runtime: Runtime
) -> None:
    one, other = two_servers
    runtime.add(talker())
    run = await one.start("talker")
    await other.until(run, "running")

    await one.post(f"/api/runs/{run}/cancel")

    assert (await other.get(f"/api/runs/{run}"))[1]["status"] == "cancelled"


async def test_health_is_told_to_anybody(client: Client) -> None:
    assert await client.get("/healthz") == (200, {"status": "ok"})


async def test_a_server_is_ready_while_its_store_answers(
    client: Client, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(journal: Journal) -> None:
        raise StoreUnavailable("The store is away.")

    assert await client.get("/readyz") == (200, {"status": "ok"})
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(type(runtime.journal), "workers", away)
        assert await client.get("/readyz") == (503, {"status": "not ready"})
        assert await client.get("/healthz") == (200, {"status": "ok"})

    assert await client.get("/readyz") == (200, {"status": "ok"})


async def test_a_store_that_does_not_answer_soon_makes_a_server_that_is_not_ready(
    client: Client, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "READY_SECONDS", 0.05)
    monkeypatch.setattr(type(runtime.journal), "workers", lambda journal: asyncio.sleep(PATIENCE_SECONDS))

    assert await client.get("/readyz") == (503, {"status": "not ready"})


async def test_an_address_with_a_slash_too_many_is_not_there_and_leads_nowhere(
    client: Client, runtime: Runtime
) -> None:
    """A redirect would name http, also behind a proxy with TLS, and a verb would be sent there in the clear."""
    async with client.session.post(f"{client.base}/api/runs/r-1/cancel/", json={}, allow_redirects=False) as told:
        assert (told.status, told.headers.get("location")) == (404, None)
