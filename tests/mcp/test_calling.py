"""Tools of a real MCP server, over both of its wires: what they answer, how far they are, and what they may cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkrein import Agent, Runtime, tool
from checkrein.core.enums import Outcome, Status
from checkrein.core.events import CallFinished, CallStarted
from checkrein.models import Turn
from tests.mcp.conftest import Make
from tests.mcp.scene import agent, ask, command, offered, started, told
from tests.support.runs import events, until_state, until_status
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


@tool(effect="none")
async def here() -> str:
    """A tool of this program."""
    return "here"


async def test_an_agent_uses_tools_of_a_server_beside_its_own(runtime: Runtime, notes: Make, witness: Witness) -> None:
    churn = agent([ask("add_note", text="milk"), ask("here"), "Noted."], notes(), here)

    run = await started(runtime, churn)

    assert await run.result() == "Noted."
    assert "add milk" in witness.words()
    assert told(churn) == ["1", "here"]
    assert {"here", "add_note", "work"} <= set(offered(churn, 0))


async def test_progress_is_shown_as_it_comes(runtime: Runtime, notes: Make) -> None:
    churn = agent([ask("work", steps=3, seconds=0.05), "Done."], notes())
    heard: list[str] = []
    run = await started(runtime, churn)
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))

    await run.result()

    lines = [line for line in heard if "reading" in line]
    assert lines == ["1 of 3: reading\n", "2 of 3: reading\n", "3 of 3: reading\n"]
    [finished] = [end for end in await events(runtime, run, CallFinished) if end.result is not None and end.chunks == 3]
    assert finished.chars == len("".join(lines))


async def test_what_a_server_was_given_is_redacted_like_any_other_secret(runtime: Runtime, witness: Witness) -> None:
    secret = "k3y-of-the-wiki-0123"
    churn = agent([ask("variable", called="WIKI_API_KEY"), "Done."], command(witness, env={"WIKI_API_KEY": secret}))

    run = await started(runtime, churn)
    await run.result()

    assert told(churn) == ["[redacted:WIKI_API_KEY]"]
    assert all(secret.encode() not in record.body for record in await runtime.journal.read(run.id))


async def test_what_is_no_text_comes_as_json_or_by_name_and_size(runtime: Runtime, witness: Witness) -> None:
    asked = Turn("Working.", calls=[("table", {}), ("picture", {}), ("whoami", {})])
    churn = agent([asked, "Done."], command(witness))

    await (await started(runtime, churn)).result()

    pid = witness.lines("whoami")[0].pid
    assert told(churn) == ['{"rows":[1,2]}', "[image image/png, 7 bytes, not shown]", str(pid)]


async def test_a_tool_that_fails_tells_the_model_why(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("fail"), ask("add_note"), "Sorry."], command(witness))
    run = await started(runtime, churn)

    await run.result()

    failed, wrong = told(churn)
    assert "the shelf is empty" in failed
    assert "text" in wrong
    outcomes = [end.outcome for end in await events(runtime, run, CallFinished)]
    assert outcomes.count(Outcome.FAILED) == 2


async def test_an_answer_that_is_too_large_is_a_failure_that_says_so(store: str, witness: Witness) -> None:
    async with Runtime(store, result_bytes=200) as runtime:
        churn = agent([ask("echo", text="x" * 300), "Done."], command(witness))
        run = await started(runtime, churn)
        await run.result()

    assert "ResultTooLarge: echo returned more than 200 bytes of JSON" in told(churn)[0]


async def test_a_secret_in_an_answer_or_in_progress_reaches_neither_journal_nor_model(
    store: str, witness: Witness
) -> None:
    async with Runtime(store, secrets=["hunter2hunter2", "reading"]) as runtime:
        churn = agent([ask("echo", text="hunter2" + "hunter2"), ask("work", steps=1), "Done."], command(witness))
        heard: list[str] = []
        run = await started(runtime, churn)
        runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
        await run.result()
        ends = [bytes(end.result) for end in await events(runtime, run, CallFinished) if end.result is not None]

    assert not any(b"hunter2" in end for end in ends)
    assert not any("reading" in text for text in heard)
    assert any(text.startswith("1 of 1") for text in heard)


async def test_what_the_author_says_of_a_tool_counts(runtime: Runtime, witness: Witness) -> None:
    """D10: a tool that cannot be undone asks a person first, and what it was asked for is what is done."""
    statements = {"delete_note": {"effect": "irreversible"}, "whoami": {"effect": "none", "idempotent": True}}
    churn = agent([ask("whoami"), ask("delete_note", number=1), "Done."], command(witness, tools=statements))
    run = await started(runtime, churn)
    state = await until_state(run, lambda state: state.approvals)
    assert not witness.lines("delete 1")

    await run.approve(next(iter(state.approvals)))
    await run.result()

    assert witness.lines("delete 1")
    calls = {call.name: call for call in await events(runtime, run, CallStarted)}
    assert calls["whoami"].effect is None
    assert calls["whoami"].idempotent
    assert calls["delete_note"].effect is not None


@pytest.mark.parametrize("trusted", [False, True])
async def test_what_a_server_says_of_its_tools_counts_only_where_it_is_trusted(
    runtime: Runtime, witness: Witness, trusted: bool
) -> None:
    churn = agent([ask("whoami"), ask("delete_note", number=1), "Done."], command(witness, trust_annotations=trusted))
    run = await started(runtime, churn)
    if trusted:
        state = await until_state(run, lambda state: state.approvals)
        await run.approve(next(iter(state.approvals)))

    await run.result()

    calls = {call.name: call for call in await events(runtime, run, CallStarted)}
    assert (calls["whoami"].effect is None) is trusted
    assert calls["whoami"].idempotent is trusted


async def test_an_idempotent_call_comes_with_a_key_that_is_the_same_for_every_attempt(
    runtime: Runtime, witness: Witness
) -> None:
    churn = agent([ask("key"), "Done."], command(witness, tools={"key": {"idempotent": True}}))
    run = await started(runtime, churn)

    await run.result()

    [call] = [call for call in await events(runtime, run, CallStarted) if call.name == "key"]
    assert told(churn) == [call.key]


async def test_only_what_is_wanted_is_offered_under_a_prefix(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("n_whoami"), "Done."], command(witness, only=["whoami", "work"], prefix="n_"))

    await (await started(runtime, churn)).result()

    assert sorted(offered(churn)) == ["n_whoami", "n_work"]
    assert told(churn)[0].isdigit()


async def test_a_pause_waits_for_the_call_and_the_run_goes_on_after_it(runtime: Runtime, witness: Witness) -> None:
    go = Path(f"{witness.log}.go")
    churn = agent([ask("work", steps=1, until=str(go)), "Done."], command(witness))
    run = await started(runtime, churn)
    await witness.saw("work begins")

    paused = asyncio.create_task(run.pause())
    await until_status(run, Status.PAUSING)
    go.touch()
    await paused
    assert witness.lines("work done")
    await run.resume()

    assert await run.result() == "Done."
    assert len(witness.lines("work begins")) == 1


async def test_a_tool_that_a_server_learns_is_offered_with_the_next_turn(runtime: Runtime, notes: Make) -> None:
    source = notes()

    @tool(effect="none")
    async def until_it_was_said() -> None:
        connection = source.connection(runtime._executor)
        await until(lambda: connection._is_stale or any(offer.name == "trick" for offer in connection._offers))

    churn = agent([ask("learn"), ask("until_it_was_said"), ask("trick"), "Done."], source, until_it_was_said)
    run = await started(runtime, churn)

    await run.result()

    assert "trick" not in offered(churn, 0)
    assert "trick" in offered(churn, 2)
    assert told(churn) == ["learned", "null", "ta-da"]


async def test_two_runs_share_one_session_and_do_not_disturb_each_other(
    runtime: Runtime, notes: Make, witness: Witness
) -> None:
    go = Path(f"{witness.log}.go")

    def one(name: str) -> Agent:
        return agent([ask("work", steps=1, word=name, until=str(go)), f"{name}."], notes(), name=name)

    runs = [await started(runtime, one("first")), await started(runtime, one("second"))]
    await witness.saw("first begins", "second begins")  # neither waits for the other to end
    go.touch()

    assert [await run.result() for run in runs] == ["first.", "second."]
    assert len({line.pid for line in witness.lines() if "begins" in line.word}) == 1
    assert len(witness.lines("started")) == 1
