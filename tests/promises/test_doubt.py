"""Calls in doubt: what was in flight when its runtime was killed is tried again only where that does no harm.

Each test kills a real process in the middle of a call. The witness is the tools' own log.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Run, Runtime
from checkrein.control.control import Control
from checkrein.core.enums import Answer, CallKind, EffectState, Outcome, Status
from checkrein.core.events import CallFinished, CallResolved, CallStarted
from checkrein.core.state import State
from checkrein.errors import Refused
from checkrein.journal import open_journal
from checkrein.models import ToolResult
from checkrein.processes.identity import this_process
from tests.support.abort_tools import fetch, lock, send, slow_draft, stuck
from tests.support.patience import PATIENCE_SECONDS
from tests.support.runs import (
    agent,
    calls,
    effects,
    events,
    gone,
    ledger,
    model,
    outcomes,
    program,
    result,
    settled,
    until_state,
)
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

PROGRAM = """
import asyncio, json, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.support import abort_tools

async def main(log, store, named):
    turns = [Turn(calls=[(name, {"log": log, **arguments}) for name, arguments in json.loads(named)]), "Done."]
    tools = [abort_tools.fetch, abort_tools.send, abort_tools.lock, abort_tools.slow_draft]
    agent = Agent("churn", model=ScriptedModel(turns), tools=tools)
    async with Runtime(store, agents=[agent]) as runtime:
        await (await runtime.start(agent, "Go.")).result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


class Crash:
    """A run whose runtime was killed in the middle of its calls."""

    def __init__(self, folder: Path, store: str, witness: Witness) -> None:
        self._folder, self._store, self._witness = folder, store, witness

    async def during(self, *named: tuple[str, dict[str, Any]], words: int) -> None:
        """Let a program use these tools, and kill it when they have written so many words."""
        async with program(self._folder, PROGRAM, self._witness.log, self._store, json.dumps(named)):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(self._witness.lines()) < words:
                    await asyncio.sleep(0.01)
        await gone(line.pid for line in self._witness.lines())

    @asynccontextmanager
    async def restarted(self, *named: tuple[str, dict[str, Any]]) -> AsyncIterator[tuple[Runtime, Run, Agent]]:
        with_log = [(name, {"log": self._witness.log, **arguments}) for name, arguments in named]
        churn = agent([calls(*with_log), "Done."], [fetch, send, lock, slow_draft])
        async with Runtime(self._store, agents=[churn]) as runtime:
            (row,) = await runtime.runs()
            yield runtime, await runtime.get(row.id), churn

    @asynccontextmanager
    async def in_doubt(self, named: tuple[str, dict[str, Any]]) -> AsyncIterator[tuple[Runtime, Run, Agent, str]]:
        """After a restart, when the call of this tool is in doubt."""
        await self.during(named, words=1)
        async with self.restarted(named) as (runtime, run, churn):
            call, _ = await doubted(run)
            yield runtime, run, churn, call


@pytest.fixture
def crash(tmp_path: Path, store: str, witness: Witness) -> Crash:
    return Crash(tmp_path, store, witness)


async def doubted(run: Run) -> tuple[str, State]:
    state = await until_state(run, lambda state: state.doubts)
    (call,) = state.doubts
    return call, state


def told(churn: Agent) -> dict[str, str]:
    return {m.name: m.content for m in model(churn).asked[-1].messages if isinstance(m, ToolResult)}


async def test_an_idempotent_tool_is_tried_again_by_itself_with_the_same_key(crash: Crash, witness: Witness) -> None:
    """D29 D30 P2"""
    await crash.during(("fetch", {"seconds": 60}), words=1)

    async with crash.restarted(("fetch", {"seconds": 60})) as (runtime, run, churn):
        assert await result(run) == "Done."

        key = f"{run.id}/c2"
        assert witness.words() == [f"fetch 1 {key}", f"fetch 2 {key}", "fetched 2"]
        assert told(churn) == {"fetch": "2"}
        ends = [event.outcome for event in await events(runtime, run, CallFinished) if event.call == "c2"]
        assert ends == [Outcome.IN_DOUBT, Outcome.COMPLETED]


async def test_any_other_tool_waits_for_a_person_and_is_not_done_again(crash: Crash, witness: Witness) -> None:
    """D26 D30 P2: the run says what it needs, from whom, and does nothing meanwhile."""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with crash.restarted(("send", {})) as (_, run, churn):
        call, state = await doubted(run)
        await asyncio.sleep(0.3)
        assert [(waiting.kind, waiting.call) for waiting in state.waiting()] == [("in_doubt", call)]
        assert state.status is Status.RUNNING
        assert model(churn).requests == 0
        assert witness.words() == ["send"]

        await run.resolve(call, "happened", result="sent, says the outbox", by="ann")

        assert await result(run) == "Done."
        assert told(churn) == {"send": "sent, says the outbox"}
        assert witness.words() == ["send"]


async def test_what_did_not_happen_is_done_with_a_permit_of_its_own(crash: Crash, witness: Witness) -> None:
    """D30: a person said that it did not happen, so the call is made: attempt 2, under the same key."""
    let = Path(f"{witness.log}.go")
    async with crash.in_doubt(("send", {"seconds": 3600, "file": str(let)})) as (runtime, run, churn, call):
        let.touch()
        await run.resolve(call, "did_not_happen", by="ann")

        assert await result(run) == "Done."
        assert told(churn) == {"send": "sent"}
        assert witness.words() == ["send", "send", "sent"]
        permits = [(e.attempt, e.key) for e in await events(runtime, run, CallStarted) if e.call == call]
        assert permits == [(1, f"{run.id}/{call}"), (2, f"{run.id}/{call}")]
        (resolved,) = await events(runtime, run, CallResolved)
        assert resolved.by == "ann"


async def test_what_is_to_be_undone_is_undone_and_the_model_is_told(crash: Crash, witness: Witness) -> None:
    """D33"""
    async with crash.in_doubt(("lock", {"seconds": 60})) as (runtime, run, churn, call):
        await run.resolve(call, "undo", by="ann")

        assert await result(run) == "Done."
        await witness.saw("undo lock")
        assert witness.words() == ["lock", "undo lock"]
        assert (await ledger(runtime, run)) == {"lock": EffectState.UNDONE}
        assert told(churn)["lock"] != "lock"


async def test_a_run_does_not_end_before_what_a_person_wanted_undone_is(
    crash: Crash, witness: Witness, tmp_path: Path
) -> None:
    """D33: the agent goes on meanwhile; its last answer counts, and is not asked for again."""
    let = {"let": str(tmp_path / "let"), "seconds": 60}
    async with crash.in_doubt(("slow_draft", let)) as (runtime, run, churn, call):
        await run.resolve(call, "undo", by="ann")
        await witness.saw("begin undo draft")
        await until(lambda: model(churn).requests == 1 and not model(churn).live)
        await asyncio.sleep(0.2)
        assert (await run.state()).status is Status.RUNNING

        (tmp_path / "let").touch()

        assert await result(run) == "Done."
        assert witness.words() == ["draft", "begin undo draft", "undo draft"]
        assert await ledger(runtime, run) == {"slow_draft": EffectState.UNDONE}
        assert model(churn).requests == 1


async def test_a_call_without_an_undo_cannot_be_undone_by_a_word(crash: Crash, witness: Witness) -> None:
    """D34"""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with crash.restarted(("send", {})) as (_, run, _churn):
        call, _ = await doubted(run)

        with pytest.raises(Refused) as refused:
            await run.resolve(call, "undo")

        assert refused.value.code == "nothing_to_undo"
        assert witness.words() == ["send"]


async def test_each_of_several_calls_in_flight_gets_its_own_word(crash: Crash, witness: Witness) -> None:
    """D30 D31: 100 % of the unknown outcomes are shown as in doubt; the idempotent one needs nobody."""
    named: list[tuple[str, dict[str, Any]]] = [
        ("send", {"seconds": 60, "word": "one"}),
        ("fetch", {"seconds": 60}),
        ("lock", {"seconds": 60}),
    ]
    await crash.during(*named, words=3)

    async with crash.restarted(*named) as (runtime, run, churn):
        state = await until_state(run, lambda state: len(state.doubts) == 2 and not state.live)
        assert sorted(doubt.name for doubt in state.doubts.values()) == ["lock", "send"]
        by_name = {doubt.name: call for call, doubt in state.doubts.items()}

        await run.resolve(by_name["send"], "happened", result="sent")
        await run.resolve(by_name["lock"], "happened", result="lock")

        assert await result(run) == "Done."
        assert told(churn) == {"send": "sent", "fetch": "2", "lock": "lock"}
        assert [word for word in witness.words() if word in ("one", "lock", "undo lock")].count("lock") == 1
        assert (await ledger(runtime, run))["lock"] is EffectState.SETTLED


async def test_a_cancel_undoes_what_is_in_doubt_when_its_owner_is_dead(crash: Crash, witness: Witness) -> None:
    """D22 D33: nobody has to decide anything first."""
    await crash.during(("lock", {"seconds": 60}), words=1)

    async with crash.restarted(("lock", {})) as (_, run, _churn):
        await doubted(run)

        receipt = settled(await run.cancel())

        assert effects(receipt) == {"lock": EffectState.UNDONE}
        assert witness.words() == ["lock", "undo lock"]


async def test_what_is_in_doubt_at_the_end_is_said_so_and_can_be_resolved_afterwards(
    crash: Crash, witness: Witness
) -> None:
    """D5 D34"""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with crash.restarted(("send", {})) as (runtime, run, _churn):
        call, _ = await doubted(run)
        receipt = settled(await run.cancel())
        assert effects(receipt) == {"send": EffectState.IN_DOUBT}

        await run.resolve(call, "did_not_happen", by="ann")

        assert await ledger(runtime, run) == {"send": EffectState.SETTLED}
        assert (await run.state()).status is Status.CANCELLED
        assert witness.words() == ["send"]


async def test_a_redirect_does_not_wait_for_a_word(crash: Crash, witness: Witness) -> None:
    """D21: the agent goes on; the call stays in doubt, and the model is told that nobody knows."""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with crash.restarted(("send", {})) as (runtime, run, churn):
        await doubted(run)

        receipt = settled(await run.redirect("do without"))

        assert receipt.delivered is True
        assert await result(run) == "Done."
        assert witness.words() == ["send"]
        assert "Interrupted" in told(churn)["send"] or "not known" in told(churn)["send"]
        assert (await ledger(runtime, run))["send"] is EffectState.IN_DOUBT


async def test_a_word_given_twice_is_refused(crash: Crash, witness: Witness) -> None:
    """D7: the first one counts."""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with crash.restarted(("send", {})) as (runtime, run, _churn):
        call, _ = await doubted(run)
        await run.resolve(call, "happened", result="sent")

        with pytest.raises(Refused) as refused:
            await run.resolve(call, "did_not_happen")

        assert refused.value.code in ("not_in_doubt", "finished")
        assert await result(run) == "Done."
        assert len(await events(runtime, run, CallResolved)) == 1
        assert witness.words() == ["send"]


async def test_a_word_given_while_nothing_runs_counts_when_something_does(
    crash: Crash, witness: Witness, store: str
) -> None:
    """D29: the runtime is closed before anybody has answered, and a person answers before it is opened again."""
    await crash.during(("send", {"seconds": 60}), words=1)
    async with crash.restarted(("send", {})) as (_, run, _churn):
        call, _ = await doubted(run)

    async with await open_journal(store) as journal:
        control = Control(journal, this_process())
        await control.resolve(run.id, call, Answer.HAPPENED, by="ann", result="sent")

    async with crash.restarted(("send", {})) as (_, again, churn):
        assert await result(again) == "Done."
        assert told(churn) == {"send": "sent"}
    assert witness.words() == ["send"]


async def test_a_pause_of_a_run_whose_runtime_was_killed_settles_at_once(
    crash: Crash, witness: Witness, store: str
) -> None:
    """D16 D30 P6: what was in flight is in doubt, and the next runtime leaves the run paused."""
    await crash.during(("send", {"seconds": 60}), words=1)

    async with await open_journal(store) as journal:
        (row,) = await journal.runs()
        receipt = settled(await Control(journal, this_process()).pause(row.id, by="ann"))
    assert receipt.status is Status.PAUSED
    assert outcomes(receipt) == {"send": Outcome.IN_DOUBT}

    async with crash.restarted(("send", {})) as (_, run, churn):
        call, _ = await doubted(run)
        await asyncio.sleep(0.3)
        assert (await run.state()).status is Status.PAUSED
        await run.resolve(call, "happened", result="sent")
        await asyncio.sleep(0.2)
        assert model(churn).requests == 0
        await run.resume()
        assert await result(run) == "Done."
    assert witness.words() == ["send"]


async def test_a_model_call_in_flight_is_simply_asked_again(store: str, tmp_path: Path, witness: Witness) -> None:
    """D30 P2: it only spends. Attempt 2 at the same place, and both count."""
    async with program(tmp_path, STREAMING, witness.log, store):
        await witness.saw("streaming")
    churn = agent(["Done."], [])

    async with Runtime(store, agents=[churn]) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)
        assert await result(run) == "Done."
        permits = [(e.call, e.attempt) for e in await events(runtime, run, CallStarted) if e.kind is CallKind.MODEL]
        assert permits == [("c1", 1), ("c1", 2)]
        assert (await run.state()).usage.model_calls == 2
        ends = [event.outcome for event in await events(runtime, run, CallFinished)]
        assert ends == [Outcome.IN_DOUBT, Outcome.COMPLETED]


STREAMING = """
import asyncio, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel
from tests.support.text import words
from tests.support.witness import note

async def main(log, store):
    agent = Agent("churn", model=ScriptedModel([words(5000)], tokens_per_second=100))
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        runtime.listen(run.id, lambda chunk: note(log, "streaming"))
        await run.result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_detached_call_is_known_dead_with_its_runtime(store: str, tmp_path: Path, witness: Witness) -> None:
    """D33: it could not be stopped, so its effect could not be undone; once its process is gone it can."""
    async with program(tmp_path, DETACHED, witness.log, store):
        await witness.saw("redirected")
    churn = agent(["never", "never"], [stuck], pace=0.01)

    async with Runtime(store, agents=[churn]) as runtime:
        (row,) = await runtime.runs()
        run = await runtime.get(row.id)
        receipt = settled(await run.cancel())

    assert effects(receipt) == {"stuck": EffectState.UNDONE}
    assert outcomes(receipt).get("stuck") is None, "it was stopped long before"
    assert witness.words() == ["stuck", "redirected", "undo stuck"]


DETACHED = """
import asyncio, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.support.abort_tools import stuck
from tests.support.witness import Witness, note
from tests.support.text import words

async def main(log, store):
    turns = [Turn(calls=[("stuck", {"log": log, "what": "stuck"})]), words(5000)]
    agent = Agent("churn", model=ScriptedModel(turns, tokens_per_second=20), tools=[stuck])
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await Witness(log).saw("stuck")
        await run.redirect("do without")
        note(log, "redirected")
        await run.result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""
