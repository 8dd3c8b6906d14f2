"""`Runtime(on_waiting=…)`: who is told when a run needs a person, of what, and how often."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from checkrein import Agent, Context, Run, Runtime, RunView, Turns, Waiting, agent, tool
from checkrein.control import waiting_watch
from checkrein.errors import MisuseError
from checkrein.models import ScriptedModel, Turn
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = pytest.mark.anyio


@tool(approval=True)
async def send(to: str) -> str:
    return f"sent to {to}"


@tool(approval="queue")
async def post(to: str) -> str:
    return f"posted to {to}"


def mailer(name: str = "mailer", use: str = "send") -> Agent[str]:
    calls = [(use, {"to": "ann"})]
    return Agent(name, model=ScriptedModel([Turn("Now.", calls=calls), "Sent."]), tools=[send, post], loops=False)


class Told:
    """Whoever is told, and keeps it."""

    def __init__(self) -> None:
        self.all: list[tuple[RunView, Waiting]] = []
        self.threads: set[str] = set()

    async def later(self, view: RunView, waiting: Waiting) -> None:
        await asyncio.sleep(0)
        self.at_once(view, waiting)

    def at_once(self, view: RunView, waiting: Waiting) -> None:
        self.threads.add(threading.current_thread().name)
        self.all.append((view, waiting))

    @property
    def what(self) -> list[str]:
        return [waiting.what for _, waiting in self.all]


@pytest.mark.parametrize("way", ["later", "at_once"])
async def test_a_run_that_needs_an_approval_tells_once_what_it_waits_for_and_how_it_looks(way: str) -> None:
    told = Told()

    async with Runtime("memory:", on_waiting=getattr(told, way)) as runtime:
        run = await runtime.start(mailer(), "Send.")
        await until(lambda: told.all)
        ((view, waiting),) = told.all
        await run.add_reason("just looking")  # another event, and nothing more to tell
        await run.approve(str(waiting.call))
        await run.result()

    assert (view.id, view.agent, view.approvals[0].name) == (run.id, "mailer", "send")
    assert (waiting.kind, waiting.what) == ("approval", "approve send")
    assert told.what == ["approve send"]
    assert (threading.current_thread().name in told.threads) is (way == "later")


async def test_an_approval_that_nobody_waits_for_is_told_too() -> None:
    told = Told()

    async with Runtime("memory:", on_waiting=told.later) as runtime:
        run = await runtime.start(mailer(use="post"), "Post.")
        await until(lambda: told.all)
        await run.approve(str(told.all[0][1].call))

    assert told.what == ["approve post"]


async def test_a_cap_that_is_reached_again_is_another_thing() -> None:
    told = Told()
    endless = Agent(
        "endless",
        model=ScriptedModel(lambda request: Turn("On.", calls=[("look", {"n": len(request.messages)})])),
        tools=[tool(look, effect="none")],
        stop_when=Turns(2),
        loops=False,
    )

    async with Runtime("memory:", on_waiting=told.later) as runtime:
        run = await runtime.start(endless, "Look.")
        await until(lambda: len(told.all) == 1)
        await run.resume()
        await until(lambda: len(told.all) == 2)
        await run.cancel()

    assert told.what == ["Turns(2) is reached"] * 2


async def look(n: int) -> int:
    return n


async def test_what_waits_already_is_told_when_a_runtime_is_opened(store: str) -> None:
    async with Runtime(store) as first:
        run = await first.start(mailer(), "Send.")
        while not (await run.state()).waiting():
            await asyncio.sleep(0.01)

    told = Told()
    async with Runtime(store, agents=[mailer()], on_waiting=told.later):
        await until(lambda: told.all)

    assert told.what == ["approve send"]


async def test_runs_of_agents_that_are_not_here_are_somebody_else_s(store: str) -> None:
    told = Told()

    async with Runtime(store) as other, Runtime(store, agents=[mailer("ours")], on_waiting=told.later) as ours:
        theirs = await other.start(mailer("theirs"), "Send.")
        while not (await theirs.state()).waiting():
            await asyncio.sleep(0.01)
        await ours.start("ours", "Send.")
        await until(lambda: told.all)

    assert {view.agent for view, _ in told.all} == {"ours"}


async def test_a_run_that_somebody_else_drives_is_told_by_them_alone(store: str) -> None:
    driver, bystander = Told(), Told()

    async with Runtime(store, agents=[mailer()], on_waiting=driver.later) as first:
        run = await first.start("mailer", "Send.")
        await until(lambda: driver.all)
        async with Runtime(store, agents=[mailer(), mailer("other")], on_waiting=bystander.later) as second:
            await second.start("other", "Send.")
            await until(lambda: any(view.agent == "other" for view, _ in bystander.all))
            assert (await run.state()).waiting()

    assert [view.id for view, _ in driver.all] == [run.id]
    assert {view.agent for view, _ in bystander.all} == {"other"}


async def raise_later(view: RunView, waiting: Waiting) -> None:
    raise RuntimeError("no network")


def raise_at_once(view: RunView, waiting: Waiting) -> None:
    raise SystemExit(3)


async def exit_later(view: RunView, waiting: Waiting) -> None:
    raise SystemExit(3)


def not_even_called() -> None: ...


@pytest.mark.parametrize("tell", [raise_later, raise_at_once, exit_later, not_even_called])
async def test_what_it_raises_is_logged_and_harms_nobody(tell: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "checkrein")

    async with Runtime("memory:", on_waiting=tell) as runtime:
        run = await runtime.start(mailer(), "Send.")
        await until(lambda: "on_waiting failed" in caplog.text)
        (call,) = (await run.state()).approvals
        await run.approve(call)

        assert await run.result() == "Sent."


async def test_one_that_never_returns_keeps_nobody_from_stopping_and_closing() -> None:
    begun = threading.Semaphore(0)

    def hang(view: RunView, waiting: Waiting) -> None:
        begun.release()
        threading.Event().wait()

    async with asyncio.timeout(PATIENCE_SECONDS), Runtime("memory:", on_waiting=hang) as runtime:
        run = await runtime.start(mailer(), "Send.")
        await until(lambda: begun.acquire(blocking=False))
        receipt = await run.cancel()

    assert receipt.status == "cancelled"


async def test_many_are_not_told_all_at_the_same_time() -> None:
    now, most, done = 0, 0, 0

    async def count(view: RunView, waiting: Waiting) -> None:
        nonlocal now, most, done
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        done += 1

    @agent
    async def asks(ctx: Context, goal: str) -> None:
        await asyncio.gather(*(ctx.tool(send, to=str(n)) for n in range(20)))

    async with Runtime("memory:", on_waiting=count) as runtime:
        run: Run = await runtime.start(asks, "Ask.")
        await until(lambda: done == 20)
        await run.cancel()

    assert most == waiting_watch.AT_ONCE


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(MisuseError, match="is no function; it is called as on_waiting"):
        Runtime("memory:", on_waiting="https://example.com")  # type: ignore[arg-type]
