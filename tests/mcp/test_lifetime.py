"""The life of a server: one for all runs, ended with its runtime however that ends, opened again when it was lost.

The witnesses are the process table and the log that the server's tools write.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import psutil
import pytest

from checkrein import MCP, Runtime
from checkrein.core.enums import EffectState, Outcome, Status
from checkrein.core.events import CallFinished, CallStarted
from checkrein.mcp.connection import MOST_LOSSES
from tests.mcp.scene import ROOT, agent, ask, bare, command, listening, offered, started, told
from tests.support.runs import events, gone, ledger, program, until_state, until_status
from tests.support.text import words
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio


def need(state: object) -> str:
    """What a paused run needs of a person, and the remedy."""
    waiting = state.needs  # type: ignore[attr-defined]
    return f"{waiting.code}: {waiting.what} {waiting.remedy}"


# -- ending


async def test_a_server_and_a_grandchild_that_left_its_session_end_with_the_runtime(
    store: str, witness: Witness
) -> None:
    """D2 D4"""
    async with Runtime(store) as runtime:
        churn = agent([ask("breed"), "Done."], command(witness))
        await (await started(runtime, churn)).result()
        await witness.saw("tick")
        pids = {line.pid for line in witness.lines()}
        assert int(told(churn)[0]) in pids
        assert all(is_alive(pid) for pid in pids)

    assert not any(is_alive(pid) for pid in pids)
    assert await witness.is_quiet()


KILLED = """
import asyncio, sys
from checkrein import Runtime
from tests.mcp.scene import agent, ask, command
from tests.support.text import words
from tests.support.witness import Witness

async def main(store, log):
    async with Runtime(store) as runtime:
        churn = agent([ask("breed"), ask("work", steps=5000, seconds=0.02), "never"], command(Witness(log)))
        await (await runtime.start(churn, "Take notes.")).result()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_server_and_its_grandchild_end_when_the_runtime_is_killed(
    tmp_path: Path, store: str, witness: Witness
) -> None:
    """D4 D7: kill -9 leaves nobody behind, and what was in flight is in doubt."""
    async with program(tmp_path, KILLED, store, witness.log) as process:
        await witness.saw("work step", "tick")
        pids = {line.pid for line in witness.lines()}
        assert len(pids) == 2
        process.kill()
        await asyncio.to_thread(process.wait)

        await gone(pids)

    async with Runtime(store) as runtime:
        churn = agent(["never", "never", "Now I know."], command(witness))
        runtime.add(churn)
        [row] = await runtime.runs()
        run = await runtime.get(row.id)
        await runtime._engine.take_up(run.id)
        state = await until_state(run, lambda state: any(doubt.person for doubt in state.doubts.values()))
        await run.resolve(next(iter(state.doubts)), "happened", result="work done")

        assert await run.result() == "Now I know."
        assert told(churn)[-1] == "work done"
        assert len(witness.lines("work begins")) == 1


async def test_a_run_that_is_played_again_asks_nothing_of_the_server_for_what_is_recorded(
    store: str, witness: Witness
) -> None:
    """D8 D30"""
    source = command(witness)
    turns = [ask("add_note", text="milk"), words(2000)]
    async with Runtime(store) as runtime:
        run = await started(runtime, agent(turns, source, pace=20.0))
        await until_state(run, lambda state: state.usage.turns == 2 and state.live)
        await run.pause()

    broken = MCP("notes", command=["no-such-command-anywhere"])
    async with Runtime(store, agents=[agent(turns, broken)]) as runtime:
        again = await runtime.get(run.id)
        await again.resume(wait=0)
        # What is recorded it could do without. The turn that goes live now needs the server.
        state = await until_state(again, lambda state: state.status is Status.PAUSED and state.needs)
        assert "no-such-command-anywhere" in need(state)

    whole = agent(turns, source)
    async with Runtime(store, agents=[whole]) as runtime:
        again = await runtime.get(run.id)
        await again.resume()
        assert await again.result() == turns[1]

    assert told(whole) == ["1"]
    assert "add_note" in offered(whole)
    assert len(witness.lines("add milk")) == 1
    assert len(witness.lines("started")) == 2


# -- being lost


async def test_a_server_that_died_is_started_again_and_the_next_run_uses_it(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("whoami"), "Done."], bare(witness))
    await (await started(runtime, churn)).result()
    psutil.Process(witness.lines("whoami")[0].pid).kill()

    again = agent([ask("whoami"), "Done."], *churn.sources, name="again")
    await (await started(runtime, again)).result()

    assert told(again) == [f"whoami: {witness.lines('whoami')[1].pid}"]
    assert len(witness.lines("started")) == 2


async def test_a_call_whose_server_died_in_the_middle_is_in_doubt_and_put_to_a_person(
    runtime: Runtime, witness: Witness
) -> None:
    """D7: nobody knows whether it happened. A person says so, and the run goes on from there."""
    churn = agent([ask("work", steps=2000, seconds=0.02), "I see."], command(witness))
    run = await started(runtime, churn)
    await witness.saw("work step")

    psutil.Process(witness.lines("work step")[0].pid).kill()
    state = await until_state(run, lambda state: state.doubts)
    call = next(iter(state.doubts))
    assert state.status is Status.RUNNING
    assert await ledger(runtime, run) == {"work": EffectState.IN_DOUBT}
    await run.resolve(call, "happened", result="it had worked")

    assert await run.result() == "I see."
    assert told(churn) == ["it had worked"]
    assert len(witness.lines("work begins")) == 1


async def test_an_idempotent_call_whose_server_died_is_tried_again(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("die", times=1), "Done."], bare(witness, tools={"die": {"idempotent": True}}))
    run = await started(runtime, churn)

    assert await run.result() == "Done."
    assert told(churn)[0].startswith("die: ")
    attempts = [call.attempt for call in await events(runtime, run, CallStarted) if call.name == "die"]
    assert attempts == [1, 2]
    assert len(witness.lines("started")) == 2


async def test_an_idempotent_call_that_always_ends_its_server_is_given_up(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("die"), "I give up."], bare(witness, tools={"die": {"idempotent": True}}))
    run = await started(runtime, churn)

    assert await run.result() == "I give up."
    assert "broke off in the middle" in told(churn)[0]
    assert len(witness.lines("die")) == 3


async def test_a_tool_that_changes_nothing_just_fails_when_its_server_dies(runtime: Runtime, witness: Witness) -> None:
    churn = agent([ask("die"), ask("whoami"), "Done."], bare(witness, tools={"die": {"effect": "none"}}))
    run = await started(runtime, churn)

    assert await run.result() == "Done."
    assert "broke off in the middle" in told(churn)[0]
    assert told(churn)[1].startswith("whoami: ")
    outcomes = [end.outcome for end in await events(runtime, run, CallFinished) if end.outcome is not Outcome.COMPLETED]
    assert outcomes == [Outcome.FAILED]


async def test_a_server_that_is_lost_again_and_again_is_put_to_a_person(runtime: Runtime, witness: Witness) -> None:
    says = {"die": {"effect": "none"}}
    churn = agent([*[ask("die") for _ in range(MOST_LOSSES)], "Done."], bare(witness, tools=says))
    run = await started(runtime, churn)

    state = await until_status(run, Status.PAUSED)

    assert "was lost 5 times within a minute" in need(state)
    assert len(witness.lines("started")) == MOST_LOSSES
    await run.resume()
    assert await run.result() == "Done."


async def test_a_server_on_the_network_that_comes_back_is_used_again(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    says = {"whoami": {"effect": "none"}, "work": {"effect": "none"}}
    async with listening(witness, tmp_path) as (url, process):
        source = MCP("notes", url=url, tools=says)
        churn = agent([ask("work", steps=2000, seconds=0.02), ask("whoami"), "Done."], source)
        run = await started(runtime, churn)
        await witness.saw("work step")
        process.kill()
        state = await until_status(run, Status.PAUSED)
    port = url.split(":")[2].split("/")[0]
    assert f"cannot be reached at http://127.0.0.1:{port}/mcp" in need(state)

    async with listening(witness, tmp_path, PORT=port):
        await run.resume()
        assert await run.result() == "Done."

    assert "broke off in the middle" in told(churn)[0]
    assert told(churn)[1].isdigit()


# -- what a person can mend


async def paused(runtime: Runtime, source: MCP) -> str:
    run = await started(runtime, agent(["Done."], source))
    said = need(await until_status(run, Status.PAUSED))
    await run.cancel()
    return said


async def test_a_command_that_is_not_there_needs_a_person(runtime: Runtime, witness: Witness) -> None:
    said = await paused(runtime, MCP("notes", command=["no-such-command-anywhere", "--token=s3cr3t"]))

    assert said == (
        "mcp_unavailable: The MCP server notes cannot be started: there is no command no-such-command-anywhere. "
        "Install it, or mend MCP(command=…), then resume."
    )


async def test_a_folder_that_is_not_there_needs_a_person(runtime: Runtime, tmp_path: Path) -> None:
    said = await paused(runtime, MCP("notes", command=[sys.executable], cwd=tmp_path / "nowhere"))

    assert "there is no folder" in said


async def test_a_server_that_ends_at_once_needs_a_person_who_is_told_what_it_said(store: str) -> None:
    code = "import sys; sys.exit('Set NOTES_TOKEN first, not hunter2hunter2.')"
    async with Runtime(store, secrets=["hunter2hunter2"]) as runtime:
        said = await paused(runtime, MCP("notes", command=[sys.executable, "-c", code]))

    assert "The MCP server notes ended before it could be used; it said: Set NOTES_TOKEN first, not " in said
    assert "by hand to see why, mend it, then resume." in said
    assert "hunter2" not in said


async def test_a_server_that_says_nothing_needs_a_person(runtime: Runtime) -> None:
    code = "import time; time.sleep(3600)"
    said = await paused(runtime, MCP("notes", command=[sys.executable, "-c", code], start_timeout=0.5))

    assert "did not answer within 0.5 s" in said


async def test_a_port_where_nobody_listens_needs_a_person(runtime: Runtime) -> None:
    with socket.socket() as taken:  # so that nobody else gets it meanwhile; a socket that does not listen refuses
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = await paused(runtime, MCP("wiki", url=f"http://user:word@127.0.0.1:{port}/mcp?token=s3cr3t"))

    assert f"The MCP server wiki cannot be reached at http://127.0.0.1:{port}/mcp: " in said
    assert "Start it, or mend MCP(url=…), then resume." in said
    assert "s3cr3t" not in said
    assert "word" not in said.replace("password", "")


async def test_a_server_that_wants_a_token_needs_a_person_and_is_happy_with_a_header(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """Also where the token runs out in the middle: the model is told, and before its next turn a person is asked."""
    token = tmp_path / "token"
    token.write_text("open-sesame")
    go = tmp_path / "go"
    async with listening(witness, tmp_path, TOKEN_FILE=str(token)) as (url, _):
        said = await paused(runtime, MCP("wiki", url=url))
        known = MCP("wiki", url=url, headers={"Authorization": "Bearer open-sesame"})
        says = ask("add_note", text="milk")
        churn = agent([ask("work", steps=1, until=str(go)), says, says, "Done."], known, name="guest")
        run = await started(runtime, churn)
        await witness.saw("work step")
        token.write_text("changed")
        go.touch()
        state = await until_status(run, Status.PAUSED)
        assert "does not let us in (HTTP 401)" in need(state)
        token.write_text("open-sesame")
        await run.resume()
        assert await run.result() == "Done."

    assert "does not let us in (HTTP 401)" in said
    assert "Give MCP(headers=…) a valid token, then resume." in said
    assert told(churn)[1:] == [
        "The MCP server wiki could not be reached: it does not let us in (HTTP 401). Nothing was done.",
        "1",
    ]


async def test_two_servers_with_a_tool_of_the_same_name_need_a_prefix(runtime: Runtime, witness: Witness) -> None:
    one, other = command(witness, "one", only=["whoami"]), command(witness, "other", only=["whoami"])
    run = await started(runtime, agent(["Done."], one, other))

    said = need(await until_status(run, Status.PAUSED))

    assert "The MCP server other has a tool whoami, and so has the MCP server one." in said
    assert 'MCP("other", prefix="other_", …)' in said
    await run.cancel()
    apart = agent(["Done."], one, command(witness, "other", only=["whoami"], prefix="other_"), name="apart")
    assert await (await started(runtime, apart)).result() == "Done."


async def test_a_tool_that_the_server_does_not_have_is_named(runtime: Runtime, witness: Witness) -> None:
    said = await paused(runtime, command(witness, tools={"delet_note": {"approval": "block"}}))

    assert "has no tool delet_note; it has: add_note," in said


# -- what a server is given


async def test_a_server_sees_only_what_it_is_given_of_the_environment(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, witness: Witness
) -> None:
    monkeypatch.setenv("BANK_TOKEN", "s3cr3t")
    run = await started(runtime, agent([ask("whoami"), "Done."], command(witness)))
    await run.result()

    environment = psutil.Process(witness.lines("whoami")[0].pid).environ()

    assert "BANK_TOKEN" not in environment
    assert environment["PYTHONPATH"] == ROOT
    assert runtime._executor.runtime in environment["CHECKREIN_RUNTIME"].split(",")
    assert environment["PATH"] == os.environ["PATH"]


async def test_a_runtime_that_closes_while_a_server_starts_waits_for_nobody(store: str) -> None:
    code = "import time; time.sleep(3600)"
    async with Runtime(store) as runtime:
        await started(runtime, agent(["Done."], MCP("notes", command=[sys.executable, "-c", code])))
        await until(lambda: any("time.sleep(3600)" in " ".join(one) for one in _commands()))

    assert not any("time.sleep(3600)" in " ".join(one) for one in _commands())


def _commands() -> list[list[str]]:
    return [command for child in psutil.Process().children() if (command := _command(child))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()  # of a zombie it is empty
    except psutil.Error:
        return []
