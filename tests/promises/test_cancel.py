"""Cancel of whole runs: everything is aborted, what is open is undone, and the receipt is true about the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from checkrein import Agent, Receipt, Run, Runtime, Settling, Tool
from checkrein.control.control import Control
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Undo
from checkrein.core.events import CallStarted, EffectUndone, RunFinished, VerbAccepted, VerbSettled
from checkrein.driver import undo as undoing
from checkrein.errors import Refused, RunFailed
from checkrein.journal import open_journal
from checkrein.models import ScriptedModel, User
from checkrein.processes.identity import this_process
from tests.support import runs
from tests.support.abort_tools import (
    draft,
    keep,
    keep_in_worker,
    lock,
    open_session,
    report,
    scratch_of,
    send,
    slow_draft,
    sticky_draft,
    stubborn_draft,
    wait_for,
    wait_for_in_worker,
    work,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


async def no_permit_follows(runtime: Runtime, run: Run) -> None:
    """P1: by the journal, after a cancel nothing but undos was permitted."""
    records = await runtime.journal.read(run.id)
    cancelled = next(r.seq for r in records if isinstance(r.event, VerbAccepted) and r.event.verb == "cancel")
    permits = [r.event for r in records if isinstance(r.event, CallStarted) and r.seq > cancelled]
    assert [permit.name for permit in permits if permit.kind is not CallKind.UNDO] == []


# -- what is undone


def saga(witness: Witness) -> Agent:
    """A finished draft and a finished lock, something undoable that is meant to stay, an e-mail, and work in flight."""
    log = {"log": witness.log}
    return runs.agent(
        [
            runs.calls(("draft", {**log, "what": "first"})),
            runs.calls(("keep", log)),
            runs.calls(("lock", {**log, "what": "second"})),
            runs.calls(("send", log)),
            runs.calls(("draft", {**log, "what": "third", "seconds": 60}), ("work", log)),
            "never",
        ],
        [draft, keep, lock, send, work],
    )


@pytest.mark.parametrize(
    ("undo", "undone"),
    [
        (Undo.OPEN, ["undo third", "undo second", "undo first"]),
        (Undo.ALL, ["undo third", "undo second", "undo kept", "undo first"]),
        (Undo.NONE, []),
    ],
)
async def test_a_cancel_undoes_what_it_is_asked_to_newest_first(
    runtime: Runtime, witness: Witness, undo: Undo, undone: list[str]
) -> None:
    """D5 D33 D34: and what has no undo, or was not to be undone, is named as left."""
    run = await runtime.start(saga(witness), "Go.")
    await witness.saw("third", "work")

    receipt = runs.settled(await run.cancel(undo=undo))

    assert receipt.status is Status.CANCELLED
    assert [word for word in witness.words() if word.startswith("undo")] == undone
    assert runs.outcomes(receipt) == {"draft": Outcome.ABORTED, "work": Outcome.ABORTED}
    told = {(effect.id, effect.what): (effect.now, effect.why) for effect in receipt.effects}
    by_what = {what: now for (_, what), (now, _) in told.items()}
    assert by_what["send"] is EffectState.LEFT
    assert next(why for (_, what), (_, why) in told.items() if what == "send") == "there is no undo for it"
    states = [effect.now for effect in receipt.effects if effect.what in ("draft", "lock")]
    match undo:
        case Undo.NONE:
            assert sorted(states) == [EffectState.IN_DOUBT, EffectState.LEFT, EffectState.LEFT]
        case _:
            assert states == [EffectState.UNDONE] * 3
    assert (await runs.ledger(runtime, run))["keep"] is (
        EffectState.UNDONE if undo is Undo.ALL else EffectState.SETTLED
    )
    await no_permit_follows(runtime, run)


async def test_an_effect_that_its_tool_has_settled_stays(runtime: Runtime, witness: Witness) -> None:
    """D33: `call.settle()`, in a task and in a worker process."""
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("keep", log), ("keep_in_worker", log)), runs.calls(("work", log)), "never"],
        [keep, keep_in_worker, work],
    )
    run = await runs.at_work(runtime, churn, witness)
    assert await runs.ledger(runtime, run) == {"keep": EffectState.SETTLED, "keep_in_worker": EffectState.SETTLED}

    receipt = runs.settled(await run.cancel())

    assert receipt.effects == ()
    assert sorted(witness.words()) == ["kept", "kept", "work"]


async def test_completing_settles_every_effect(runtime: Runtime, witness: Witness) -> None:
    """D33: after that there is nothing left to undo."""
    churn = runs.agent([runs.calls(("draft", {"log": witness.log})), "Done."], [draft])
    run = await runtime.start(churn, "Go.")

    await runs.result(run)

    assert await runs.ledger(runtime, run) == {"draft": EffectState.SETTLED}
    with pytest.raises(Refused) as refused:
        await run.cancel(undo="all")
    assert refused.value.code == "finished"
    assert "undo draft" not in witness.words()


async def test_an_undo_is_told_what_became_of_its_call(runtime: Runtime, witness: Witness) -> None:
    """D33: its arguments, its result if there is one, how it ended, and always the same key."""
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("open_session", log)), runs.calls(("open_session", {**log, "seconds": 60})), "never"],
        [open_session],
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("open", times=2)

    await run.cancel()

    assert witness.words()[2:] == [
        f"undo {run.id}/c4 open_session killed None",
        f"undo {run.id}/c2 open_session completed {{'session': 7}}",
    ]


# -- undos that do not work


def drafts_and_works(draft: Tool, witness: Witness, **arguments: str) -> Agent:
    drafts = runs.calls((draft.name, {"log": witness.log, **arguments}))
    return runs.agent([drafts, runs.calls(("work", {"log": witness.log}))], [draft, work])


async def test_an_undo_that_fails_three_times_is_left_and_can_be_tried_again_after_the_end(
    runtime: Runtime, witness: Witness, tmp_path: Path
) -> None:
    """D33 D34: left with the reason, and *Try again* works once the cause is mended; then it is undone exactly once."""
    mended = tmp_path / "mended"
    churn = drafts_and_works(stubborn_draft, witness, mended=str(mended))
    run = await runs.at_work(runtime, churn, witness)

    receipt = runs.settled(await run.cancel())

    (left,) = receipt.effects
    assert (left.now, left.why) == (
        EffectState.LEFT,
        "its undo failed 3 times: ConnectionError: the draft service is down",
    )
    key = f"undo {run.id}/c2"
    assert witness.words() == ["draft", "work", key, key, key]

    await run.retry_undo(left.id)
    await witness.saw(key, times=6)
    await until_left(runtime, run)
    mended.touch()
    await run.retry_undo(left.id)
    await witness.saw("undone")

    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await runs.ledger(runtime, run))["stubborn_draft"] is not EffectState.UNDONE:
            await asyncio.sleep(0.01)
    assert witness.words().count(key) == 7
    assert len(await runs.events(runtime, run, EffectUndone)) == 1
    with pytest.raises(Refused) as refused:
        await run.retry_undo(left.id)
    assert refused.value.code == "nothing_to_undo"


async def until_left(runtime: Runtime, run: Run) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await runs.ledger(runtime, run))["stubborn_draft"] is not EffectState.LEFT:
            await asyncio.sleep(0.01)


async def test_an_undo_that_hangs_is_stopped_and_left(
    runtime: Runtime, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D16 D33: it costs the others nothing of their time, and is not tried again."""
    shares = [0.5]  # the newest one's; the others have theirs
    monkeypatch.setattr(undoing, "undo_seconds", lambda *_, **__: shares.pop() if shares else 30.0)
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("draft", log)), runs.calls(("sticky_draft", log)), runs.calls(("work", log))],
        [draft, sticky_draft, work],
    )
    run = await runs.at_work(runtime, churn, witness)

    receipt = runs.settled(await run.cancel())

    assert runs.effects(receipt) == {"draft": EffectState.UNDONE, "sticky_draft": EffectState.LEFT}
    (sticky,) = (effect for effect in receipt.effects if effect.now is EffectState.LEFT)
    assert sticky.why == "its undo did not end within 0.5 s"
    assert witness.words().count(f"undo {run.id}/c4") <= 1
    assert witness.words()[-1] == "undo draft", "the others are undone all the same"


async def test_a_cancel_settles_in_time_whatever_its_undos_do(store: str, witness: Witness) -> None:
    """D16: after `settle_seconds` what is not undone yet is listed as it is, and the undo goes on afterwards."""
    async with Runtime(store, settle_seconds=0.5) as runtime:
        let = Path(witness.log).with_name("let")
        churn = drafts_and_works(slow_draft, witness, let=str(let))
        run = await runs.at_work(runtime, churn, witness)

        receipt = runs.settled(await run.cancel())

        assert receipt.status is Status.CANCELLED
        assert runs.effects(receipt) == {"slow_draft": EffectState.LEFT}
        let.touch()
        await witness.saw("undo draft")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await runs.ledger(runtime, run)) != {"slow_draft": EffectState.UNDONE}:
                await asyncio.sleep(0.01)


# -- cancel and cancel


async def test_a_second_cancel_gets_the_same_receipt(runtime: Runtime, witness: Witness) -> None:
    """D7: at the same time, and long after."""
    churn = runs.agent([runs.calls(("draft", {"log": witness.log, "seconds": 60})), "never"], [draft])
    run = await runs.at_work(runtime, churn, witness, "draft")

    first, second = await asyncio.gather(run.cancel(by="ann"), run.cancel(by="bob"))
    third = await run.cancel(by="cat", undo="all")

    assert first == second == third
    assert witness.words().count("undo draft") == 1


async def test_a_repeated_request_is_a_look_up(runtime: Runtime, witness: Witness) -> None:
    """P5: whoever did not hear the answer asks again with the same id."""
    churn = runs.agent([runs.calls(("draft", {"log": witness.log, "seconds": 60})), "never"], [draft])
    run = await runs.at_work(runtime, churn, witness, "draft")

    first = await runtime.control.cancel(run.id, by="ann", request_id="once")
    second = await runtime.control.cancel(run.id, by="ann", request_id="once")

    assert first == second
    assert len(await runs.receipts(runtime, run)) == 1


async def test_a_weaker_cancel_replaces_one_that_is_undoing(runtime: Runtime, witness: Witness, tmp_path: Path) -> None:
    """D33: the undo at work is finished, the others are not begun, and both receipts say how it came."""
    let = tmp_path / "let"
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("draft", log)), runs.calls(("slow_draft", {**log, "let": str(let)})), runs.calls(("work", log))],
        [draft, slow_draft, work],
    )
    run = await runs.at_work(runtime, churn, witness)
    first = asyncio.create_task(run.cancel(by="ann"))
    await witness.saw("begin undo draft")

    second = asyncio.create_task(run.cancel(undo="none", by="bob"))
    await runs.until_state(run, lambda state: state.undo is Undo.NONE)
    let.touch()
    weaker, stronger = runs.settled(await second), runs.settled(await first)

    assert stronger.superseded_by is not None
    assert (weaker.by, weaker.status) == ("bob", Status.CANCELLED)
    assert runs.effects(weaker) == {"slow_draft": EffectState.UNDONE, "draft": EffectState.LEFT}
    assert runs.outcomes(weaker) == {"work": Outcome.ABORTED}
    assert witness.words().count("undo draft") == 1, "that of the slow one"


# -- cancel at odd moments


async def test_a_cancel_before_the_first_call_lets_nothing_begin(runtime: Runtime, witness: Witness) -> None:
    """D3: a permit that was committed before is listed, and nothing follows."""
    churn = runs.agent([runs.calls(("work", {"log": witness.log})), "never"], [work], pace=0.01)
    run = await runtime.start(churn, "Go.")

    receipt = runs.settled(await run.cancel())

    asked = runs.model(churn).requests
    await asyncio.sleep(0.2)
    assert receipt.status is Status.CANCELLED
    assert runs.model(churn).requests == asked <= 1
    assert witness.words() == []
    await no_permit_follows(runtime, run)
    with pytest.raises(RunFailed) as failed:
        await runs.result(run)
    assert failed.value.status is Status.CANCELLED


async def test_a_cancel_with_nothing_in_flight_settles_at_once(runtime: Runtime, witness: Witness) -> None:
    """D22: paused between two calls."""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "never"], [work])
    run = await runs.paused_at_work(runtime, churn, witness)

    receipt = runs.settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert receipt.calls == ()
    assert receipt.timing_ms.calls_stopped is None, "nothing was to be stopped"


async def test_a_queued_run_is_cancelled_before_it_begins(runtime: Runtime, witness: Witness) -> None:
    """D22: not only queued work is cancelled, but queued work too."""
    churn = runs.agent([runs.calls(("work", {"log": witness.log})), "never"], [work])
    first = await runtime.start(churn, "Go.", thread="t")
    await witness.saw("work")
    queued = await runtime.start(churn, "Then this.", thread="t")

    receipt = runs.settled(await queued.cancel())

    assert receipt.status is Status.CANCELLED
    await first.cancel()
    await asyncio.sleep(0.2)
    assert runs.model(churn).requests == 1
    assert witness.words() == ["work"]


async def test_a_cancel_that_loses_against_completion_is_told_so(runtime: Runtime) -> None:
    """D7"""
    run = await runtime.start(runs.agent(["Done."], []), "Go.")
    await runs.result(run)

    with pytest.raises(Refused) as refused:
        await run.cancel()

    assert refused.value.code == "finished"
    assert refused.value.status is Status.COMPLETED
    assert len(await runs.events(runtime, run, RunFinished)) == 1


async def test_a_call_that_never_began_is_not_undone_and_not_in_doubt(runtime: Runtime, witness: Witness) -> None:
    """D3 D5 D33: more calls than there are worker processes. Nothing is undone that was not done."""
    many = [("lock", {"log": witness.log, "seconds": 60, "what": f"lock {n}"}) for n in range(40)]
    run = await runtime.start(runs.agent([runs.calls(*many), "never"], [lock]), "Go.")
    await until(lambda: len(witness.lines()) >= 2)

    receipt = runs.settled(await run.cancel())

    begun = sorted(word for word in witness.words() if word.startswith("lock"))
    undone = sorted(word.removeprefix("undo ") for word in witness.words() if word.startswith("undo"))
    assert len(receipt.calls) == 40
    assert len(begun) < 40
    assert await witness.is_quiet()
    assert set(begun) <= set(undone)
    assert len(undone) < 40
    assert [effect.now for effect in receipt.effects] == [EffectState.UNDONE] * len(undone)


async def test_a_stop_reaches_its_own_run_only(runtime: Runtime, witness: Witness, tmp_path: Path) -> None:
    """D2 D26: the tools of another run, of the same agent and in the same runtime, go on."""
    go = {"log": witness.log, "file": str(tmp_path / "go")}
    churn = runs.agent(
        [runs.calls(("wait_for", go), ("wait_for_in_worker", go)), "Done."], [wait_for, wait_for_in_worker]
    )
    first, second = [await runtime.start(churn, "Go.") for _ in range(2)]
    await witness.saw("waiting", "waiting in a worker", times=2)

    receipt = runs.settled(await first.cancel())
    (tmp_path / "go").touch()

    assert runs.outcomes(receipt) == {"wait_for": Outcome.ABORTED, "wait_for_in_worker": Outcome.KILLED}
    assert await runs.result(second) == "Done."
    assert sorted(witness.words()[4:]) == ["let go", "worker let go"]


async def test_a_single_call_can_be_aborted_and_the_agent_goes_on(runtime: Runtime, witness: Witness) -> None:
    """D1: without stopping the run."""
    log = {"log": witness.log}
    churn = runs.agent([runs.calls(("work", log), ("draft", {**log, "seconds": 0.3})), "Done."], [work, draft])
    run = await runtime.start(churn, "Go.")
    await witness.saw("work", "draft")
    call = await runs.in_flight(run, "work")

    receipt = runs.settled(await run.abort(call))

    assert receipt.status is Status.RUNNING
    assert await runs.result(run) == "Done."
    assert witness.words() == ["work", "draft", "draft made"]
    with pytest.raises(Refused):
        await run.abort(call)


# -- files


async def test_what_a_stopped_tool_was_writing_vanishes(runtime: Runtime, witness: Witness, tmp_path: Path) -> None:
    """D1 D5: no half-written file, and no scratch folder."""
    churn = runs.agent(
        [runs.calls(("report", {"log": witness.log, "folder": str(tmp_path), "waits": True})), "never"], [report]
    )
    run = await runtime.start(churn, "Go.")
    await until(lambda: witness.lines())
    assert scratch_of(witness).exists()

    await run.cancel()

    assert not scratch_of(witness).exists()
    assert not (tmp_path / "report.txt").exists()
    assert not list(tmp_path.glob(".report*"))


async def test_what_a_tool_wrote_appears_when_it_succeeds(runtime: Runtime, witness: Witness, tmp_path: Path) -> None:
    """D1"""
    churn = runs.agent(
        [runs.calls(("report", {"log": witness.log, "folder": str(tmp_path), "waits": False})), "Done."], [report]
    )

    await runs.result(await runtime.start(churn, "Go."))

    assert (tmp_path / "report.txt").read_text() == "the whole report"
    assert not scratch_of(witness).exists()


# -- where no driver lives


async def until_it_waits_for_a_worker(ask: Callable[..., Awaitable[Receipt | Settling]]) -> Settling:
    """Ask for a verb, again and again by the same request, until its answer says that."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            settling = await ask(by="ann", wait=0.1, request_id="once")
            assert isinstance(settling, Settling)
            if settling.waiting_for == "a worker with agent churn":
                return settling


async def test_a_cancel_without_any_runtime_is_in_force_and_undone_once_there_is_one(
    store: str, witness: Witness
) -> None:
    """D16 D33 P6: accepted and fenced by a process that has none of the agent's code."""
    log = {"log": witness.log}
    churn = runs.agent(
        [runs.calls(("lock", log)), runs.calls(("work", runs.until_let(witness))), "never"], [lock, work]
    )
    async with Runtime(store) as first:
        run = await runs.paused_at_work(first, churn, witness)

    async with await open_journal(store) as journal:
        control = Control(journal, this_process())
        settling = await until_it_waits_for_a_worker(partial(control.cancel, run.id))
        assert settling.status == Status.CANCELLING
        with pytest.raises(Refused):
            await control.resume(run.id, by="bob")
    assert "undo lock" not in witness.words()

    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        receipt = runs.settled(await again.cancel())
        assert receipt.status is Status.CANCELLED
        assert runs.effects(receipt) == {"lock": EffectState.UNDONE}
        assert receipt.by == "ann"
        await no_permit_follows(second, again)
    assert witness.words() == ["lock", "lock made", "work", "work done", "undo lock"]


async def test_a_cancel_without_any_runtime_settles_at_once_where_nothing_is_to_be_undone(
    store: str, witness: Witness
) -> None:
    """D16 P6"""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "never"], [work])
    async with Runtime(store) as first:
        run = await runs.paused_at_work(first, churn, witness)

    async with await open_journal(store) as journal:
        receipt = await Control(journal, this_process()).cancel(run.id, by="ann")
        state = await journal.load(run.id)

    assert isinstance(receipt, Receipt)
    assert receipt.status is state.status is Status.CANCELLED


async def let_go_when_pausing(run: Run, witness: Witness) -> None:
    await runs.until_status(run, Status.PAUSING)
    runs.let_go(witness)


async def test_a_pause_without_any_runtime_holds_when_there_is_one(store: str, witness: Witness) -> None:
    """D16 D29 P6: the run was about to go on by itself."""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Done."], [work])
    async with Runtime(store) as first:
        run = await runs.at_work(first, churn, witness)
        letting = asyncio.create_task(let_go_when_pausing(run, witness))
    await letting

    async with await open_journal(store) as journal:
        receipt = await Control(journal, this_process()).pause(run.id, by="ann")
    assert isinstance(receipt, Receipt)
    assert (receipt.by, receipt.status) == ("ann", Status.PAUSED)

    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        await asyncio.sleep(0.3)
        assert (await again.state()).status is Status.PAUSED
        await again.resume()
        assert await runs.result(again) == "Done."
    assert witness.words() == ["work", "work done"]


async def test_a_redirect_without_any_runtime_is_delivered_by_the_next_one(store: str, witness: Witness) -> None:
    """D16 D21 P6"""
    churn = runs.agent([runs.calls(("work", runs.until_let(witness))), "Only Q3."], [work])
    async with Runtime(store) as first:
        run = await runs.paused_at_work(first, churn, witness)

    async with await open_journal(store) as journal:
        await until_it_waits_for_a_worker(partial(Control(journal, this_process()).redirect, run.id, "only Q3"))

    async with Runtime(store, agents=[churn]) as second:
        again = await second.get(run.id)
        assert await runs.result(again) == "Only Q3."
        redirected = (await runs.receipts(second, again))[-1]
    assert redirected.delivered is True
    assert runs.model(churn).asked[-1].messages[-1] == User("only Q3")
    assert witness.words() == ["work", "work done"]


UNDOING = """
import asyncio, pathlib, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.support.abort_tools import draft, slow_draft, work
from tests.support.witness import Witness

async def main(log, store, let):
    turns = [
        Turn(calls=[("draft", {"log": log, "what": "a"})]),
        Turn(calls=[("slow_draft", {"log": log, "let": let, "what": "b"})]),
        Turn(calls=[("draft", {"log": log, "what": "c"})]),
        Turn(calls=[("work", {"log": log})]),
    ]
    agent = Agent("churn", model=ScriptedModel(turns), tools=[draft, slow_draft, work])
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await Witness(log).saw("work")
        await run.cancel()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_crash_in_the_middle_of_undoing_is_resumed(store: str, witness: Witness, tmp_path: Path) -> None:
    """D33 P3: what was undone is not undone again, the one at work is begun again, the rest follows."""
    let = tmp_path / "let"
    async with runs.program(tmp_path, UNDOING, witness.log, store, str(let)) as process:
        await witness.saw("begin undo b")
    await runs.gone([process.pid])
    let.touch()

    churn = runs.agent(["never"], [draft, slow_draft, work])
    async with Runtime(store, agents=[churn]) as second:
        (row,) = await second.runs()
        run = await second.get(row.id)
        await runs.until_status(run, Status.CANCELLED)
        (receipt,) = await runs.receipts(second, run)
        assert len(await runs.events(second, run, EffectUndone)) == 3

    undone = [word for word in witness.words() if "undo" in word]
    assert undone == ["undo c", "begin undo b", "begin undo b", "undo b", "undo a"]
    assert [effect.now for effect in receipt.effects] == [EffectState.UNDONE] * 3
    assert runs.outcomes(receipt)["work"] == Outcome.ABORTED
    assert runs.model(churn).requests == 0


async def test_the_receipt_is_durable_before_it_is_given(runtime: Runtime, witness: Witness, store: str) -> None:
    """P5: whoever reads the file at that moment finds it."""
    churn = runs.agent([runs.calls(("draft", {"log": witness.log, "seconds": 60})), "never"], [draft])
    run = await runs.at_work(runtime, churn, witness, "draft")

    receipt = await run.cancel()

    async with await open_journal(store) as other:
        found = [r.event.receipt for r in await other.read(run.id) if isinstance(r.event, VerbSettled)]
    assert found == [receipt]


async def test_a_model_that_breaks_in_a_way_nobody_expected_fails_the_run_and_leaves_nothing_in_flight(
    runtime: Runtime,
) -> None:
    """D4: only the author's own exception fails a run, and it says what it was."""

    class Broken(ScriptedModel):
        def _turn(self, place: int, request: object) -> object:  # type: ignore[override]
            raise KeyError("choices")

    run = await runtime.start(Agent("churn", model=Broken([])), "Go.")

    with pytest.raises(RunFailed, match="choices"):
        await runs.result(run)
    assert (await run.state()).live == {}
