"""Whoever is cancelled while they hold a lease, a runtime or a model's stream gives it back, and no verb is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Receipt, Runtime
from checkrein.calls.model import ModelExecution
from checkrein.control.control import Control
from checkrein.core.enums import CallKind, Status
from checkrein.core.events import RunCreated, VerbAccepted, VerbSettled
from checkrein.engines import leases
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine
from checkrein.errors import Refused
from checkrein.journal import Journal
from checkrein.models import Request, ScriptedModel, Turn, User
from checkrein.secrets import Secrets
from tests.support.driver_harness import Outside, Playing, driver_of, new_run, owner, until
from tests.support.driver_harness import Stage as Hands
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.races.nth_await import Cut, CutEverywhere
from tests.torture.races.traces import Look

pytestmark = pytest.mark.anyio


async def quickly(hands: Hands) -> str:
    await hands.call("fetch")
    return "done"


async def slowly(hands: Hands) -> str:
    await hands.call("think", seconds=60, kind=CallKind.MODEL)  # which a pause stops at once
    return "done"


async def until_finished(journal: Journal, run: str, *wanted: Status) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (status := (await journal.load(run)).status) not in (wanted or (Status.COMPLETED,)):
            assert status not in (Status.FAILED, Status.KILLED), status
            await asyncio.sleep(0.005)


async def is_free(journal: Journal, run: str) -> bool:
    """Whether nobody has the run: what is handed over keeps its lease, as one that has run out."""
    lease = await journal.lease(run)
    return lease is None or lease.deadline == 0.0


# -- an engine


async def test_a_run_whose_taking_up_is_cancelled_has_a_driver_or_no_lease(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4: a lease without a driver would keep everybody else away for as long as this process lives."""
    monkeypatch.setattr(leases, "CLAIM_SECONDS", 3600.0)  # so that only this test takes runs up
    programs = dict[str, Any]()
    async with LeaseEngine(Dispatcher(journal, owner(), programs)) as engine:

        async def scene(cut: Cut) -> None:
            run = next(runs)
            agent = f"agent of {run}"
            await journal.create(RunCreated(id="created", at=1.0, run=run, agent=agent, goal="play", thread=run))
            await asyncio.sleep(0.02)  # mostly, the engine has looked by now, and has no such agent
            programs[agent] = Playing(Outside(), slowly)
            await cut.run(engine.take_up(run))

            # The engine itself may be late to look, and be taking it up at this moment.
            async with asyncio.timeout(PATIENCE_SECONDS):
                while engine.driver(run) is None and await journal.lease(run) is not None:
                    await asyncio.sleep(0.005)
                await engine.take_up(run)
                while engine.driver(run) is None:
                    await asyncio.sleep(0.005)

        await cut_everywhere(f"LeaseEngine.take_up on {type(journal).__name__}", scene)


async def test_a_driver_of_an_engine_that_is_cancelled_gives_its_lease_back(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """D4"""
    async with Dispatcher(journal, owner(), {}) as dispatcher:

        async def scene(cut: Cut) -> None:
            await new_run(journal, run := next(runs))
            lease = await journal.claim(run, owner("cut"), seconds=60)
            driver = await driver_of(journal, Playing(Outside(), quickly), lease)
            await cut.run(dispatcher._drive(run, driver))

            assert await journal.lease(run) is None

        await cut_everywhere(f"Dispatcher._drive on {type(journal).__name__}", scene)


async def test_an_engine_whose_start_is_cancelled_holds_nothing(
    journal: Journal, traces: Look, cut_here_and_there: CutEverywhere
) -> None:
    """D4: no thread, no lease, nobody who drives."""
    for number in range(2):
        await new_run(journal, f"r{number}")

    async def scene(cut: Cut) -> None:
        before = traces()
        engine = LeaseEngine(Dispatcher(journal, owner(), {"player": Playing(Outside(), slowly)}))
        if await cut.run(engine.__aenter__()) is not None:
            await engine.__aexit__()
        await before.gone()
        for number in range(2):
            assert await is_free(journal, f"r{number}")

    await cut_here_and_there(f"LeaseEngine.__aenter__ on {type(journal).__name__}", scene)


async def test_an_engine_whose_end_is_cancelled_has_ended(
    journal: Journal, runs: Iterator[str], traces: Look, cut_here_and_there: CutEverywhere
) -> None:
    """D4: what it drove is paused, and goes on with the next one."""

    async def scene(cut: Cut) -> None:
        before, outside = traces(), Outside()
        engine = LeaseEngine(Dispatcher(journal, owner(), {"player": Playing(outside, quickly)}))
        await engine.__aenter__()
        await new_run(journal, run := next(runs))
        await engine.take_up(run)
        await cut.run(engine.__aexit__())
        await before.gone()
        assert await is_free(journal, run)

        async with LeaseEngine(Dispatcher(journal, owner("next"), {"player": Playing(outside, quickly)})):
            await until_finished(journal, run)

    await cut_here_and_there(f"LeaseEngine.__aexit__ on {type(journal).__name__}", scene)


# -- control


@pytest.mark.parametrize("verb", ["cancel", "pause", "redirect"])
async def test_a_verb_that_is_cancelled_holds_no_lease_and_can_be_asked_for_again(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere, verb: str
) -> None:
    """D27: nobody drives the run, so control has to claim it."""
    control = Control(journal, owner("control"))

    def ask(run: str) -> Any:
        given = {"instruction": "only Q3"} if verb == "redirect" else {}
        return getattr(control, verb)(run, by="p", request_id="once", wait=0.02 if verb == "redirect" else 20, **given)

    async def scene(cut: Cut) -> None:
        await new_run(journal, run := next(runs))
        await cut.run(ask(run))
        assert await journal.lease(run) is None

        again = await ask(run)

        events = [record.event for record in await journal.read(run)]
        assert len([event for event in events if isinstance(event, VerbAccepted)]) == 1
        assert await journal.lease(run) is None
        if verb != "redirect":  # which waits for a driver
            assert isinstance(again, Receipt)
            assert len([event for event in events if isinstance(event, VerbSettled)]) == 1

    await cut_everywhere(f"Control.{verb} of an undriven run on {type(journal).__name__}", scene)


# -- a runtime


def agent() -> Agent:
    return Agent("talker", model=ScriptedModel(["one two three"]), stop_when=None)


async def test_a_runtime_whose_start_is_cancelled_leaves_nothing(
    tmp_path: Path, leaves_no_trace: CutEverywhere
) -> None:
    """D4: no supervisor, no worker, no folder, no open journal, no thread."""

    async def scene(cut: Cut) -> None:
        runtime = Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[agent()])
        if await cut.run(runtime.__aenter__()) is not None:
            await runtime.__aexit__(None, None, None)

    await leaves_no_trace("Runtime.__aenter__", scene)


async def test_a_runtime_whose_end_is_cancelled_leaves_nothing(tmp_path: Path, leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        runtime = await Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[agent()]).__aenter__()
        await runtime.start("talker", "Count.")
        await cut.run(runtime.__aexit__(None, None, None))

    await leaves_no_trace("Runtime.__aexit__", scene)


async def test_a_start_of_a_run_that_is_cancelled_has_begun_it_or_not(
    tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """One that is in the journal is driven, also when nobody holds its handle."""
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[agent()]) as runtime:

        async def scene(cut: Cut) -> None:
            await cut.run(runtime.start("talker", "Count."))
            for row in await runtime.runs():
                await until_finished(runtime.journal, row.id)
                assert await no_lease(runtime.journal, row.id)

        await cut_everywhere("Runtime.start", scene)


@pytest.mark.parametrize("verb", ["pause", "cancel", "redirect", "ask"])
async def test_a_verb_on_a_driven_run_that_is_cancelled_is_in_force_or_was_never_asked(
    tmp_path: Path, cut_here_and_there: CutEverywhere, verb: str
) -> None:
    """D17: whoever asked and went away has left nothing half-done: every verb that was accepted is settled once."""
    talker = Agent("talker", model=ScriptedModel(["one two three"] * 3, tokens_per_second=50), stop_when=None)
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker]) as runtime:

        async def scene(cut: Cut) -> None:
            run = await runtime.start("talker", "Count.")
            words = ["only Q3"] if verb in ("redirect", "ask") else []
            with suppress(Refused):
                await cut.run(getattr(run, verb)(*words))
            async with asyncio.timeout(PATIENCE_SECONDS):
                # A pause that was given to the journal may come into force after whoever asked for it is gone.
                while not (state := await run.state()).is_finished:
                    if state.status is Status.PAUSED:
                        with suppress(Refused):
                            await run.resume()
                    await asyncio.sleep(0.01)

            events = [record.event for record in await runtime.journal.read(run.id)]
            accepted = [event.id for event in events if isinstance(event, VerbAccepted)]
            assert sorted(accepted) == sorted(event.accepted for event in events if isinstance(event, VerbSettled))
            assert await no_lease(runtime.journal, run.id)

        await cut_here_and_there(f"Run.{verb}", scene)


async def no_lease(journal: Journal, run: str) -> bool:
    """A driver that has finished gives its lease back soon."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await journal.lease(run) is not None:
            await asyncio.sleep(0.005)
    return True


async def test_whoever_waits_for_a_result_and_is_cancelled_listens_no_longer(
    tmp_path: Path, cut_everywhere: CutEverywhere
) -> None:
    """A client that goes away is not a stop: the run goes on."""
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[agent()]) as runtime:

        async def scene(cut: Cut) -> None:
            run = await runtime.start("talker", "Count.")
            await cut.run(run.result())

            assert await run.result() == "one two three"
            await until(lambda: run.id not in runtime.journal._tower.followed())  # type: ignore[attr-defined]

        await cut_everywhere("Run.result", scene)


# -- a model's stream


@pytest.mark.parametrize("what", ["ended", "abort"])
async def test_a_stream_is_closed_by_an_abort_whoever_is_cancelled(cut_everywhere: CutEverywhere, what: str) -> None:
    """D2 D12: by the model's own count nobody reads any more, and nothing is forwarded after the stop."""

    async def scene(cut: Cut) -> None:
        model, heard = ScriptedModel([Turn("one two three four five six")], tokens_per_second=400), list[str]()
        request = Request("", (User("Count."),))
        asking = ModelExecution(model, request, lambda _, text: heard.append(text), secrets=Secrets.of(()))
        await asyncio.sleep(0.004)
        await cut.run(getattr(asking, what)())
        await asking.abort()
        by_then = list(heard)
        await asyncio.sleep(0.01)

        assert model.live == 0
        assert heard == by_then
        assert (await asking.ended()).chars == sum(map(len, heard))

    await cut_everywhere(f"ModelExecution.{what}", scene)
