"""`async def` tools: ended with every task, thread and process they have started, and never in a spin."""

from __future__ import annotations

import asyncio
import contextlib
import time

import anyio
import pytest

from checkrein.calls.current import current_call
from checkrein.calls.in_process import instrumentation
from checkrein.core.enums import Outcome
from tests.support import tools
from tests.support.blocked import Blocked
from tests.support.patience import PATIENT_GRACE_SECONDS
from tests.support.witness import is_alive, note, until

pytestmark = pytest.mark.anyio


# -- performing


async def test_a_call_returns_its_result_as_json_and_a_failure_its_error(start):
    done = await start(tools.add_async, a=1, b=2).ended()

    async def fails() -> None:
        raise ValueError("no")

    failed = await start(fails).ended()

    assert (done.outcome, done.result) == (Outcome.COMPLETED, b"3")
    assert (failed.outcome, failed.error) == (Outcome.FAILED, "ValueError: no")


async def test_a_failure_that_cannot_say_what_it_is_is_still_the_failure_of_its_call(start):
    ended = await start(tools.raise_unspeakable_async).ended()

    assert ended.outcome is Outcome.FAILED
    assert ended.error == "Unspeakable: (what it says cannot be read: its str() raised RuntimeError)"


async def test_sys_exit_in_a_tool_does_not_end_the_runtime(start):
    async def leaves() -> None:
        raise SystemExit(3)

    ended = await start(leaves).ended()

    assert (ended.outcome, ended.error) == (Outcome.FAILED, "SystemExit: 3")


async def test_a_tool_that_cancels_itself_has_failed(start):
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    assert (await start(cancels_itself).ended()).outcome is Outcome.FAILED


# -- stopping


@pytest.mark.parametrize("function", [tools.tick_async, tools.tick_in_thread])
async def test_a_tool_is_aborted_where_it_waits(start, witness, function):
    """D2, D22. Also with a thread that it waits for: asyncio alone returns at once and lets the thread run on."""
    execution = start(function, log=witness.log)
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()


async def test_a_call_that_is_aborted_at_once_never_begins(start, witness):
    execution = start(tools.tick_async, log=witness.log)

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert not (await execution.ended()).begun
    assert witness.lines() == []


async def test_a_tool_is_given_time_to_clean_up_and_is_not_cancelled_again_meanwhile(start, witness):
    """D5: an asyncio program expects one cancellation, not one at every await."""
    execution = start(tools.clean_up_async, log=witness.log, seconds=0.2)
    await witness.saw("begun")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert witness.words() == ["begun", "cleaned up"]


async def test_structured_children_clean_up_too(start, witness):
    execution = start(tools.use_task_group, log=witness.log)
    await witness.saw("begun", times=2)

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert witness.words().count("cleaned up") == 2


async def test_the_shields_of_anyio_hold(start, witness):
    async def shields() -> None:
        note(witness.log, "begun")
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.3)
            note(witness.log, "whole")
        await anyio.sleep(60)
        note(witness.log, "never")

    execution = start(shields)
    await witness.saw("begun")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED
    assert witness.words() == ["begun", "whole"]


async def test_a_tool_that_swallows_every_cancellation_is_detached_without_a_spin(start, witness):
    """D2, D15: a level-triggered cancel scope alone delivers it 80,000 times a second and takes a whole core."""
    execution = start(tools.swallow_async, log=witness.log)
    await witness.saw("begun")
    began, used = time.monotonic(), time.process_time()

    outcome = await execution.abort(grace_seconds=1.0)
    await asyncio.sleep(1.0)

    assert outcome is Outcome.DETACHED
    assert time.process_time() - used < 0.5 * (time.monotonic() - began)
    assert 1 <= witness.words().count("caught") <= 12
    assert (await execution.ended()).left[0].startswith("task checkrein")


def swallowing(witness, let, swallowed=None):
    """A tool that swallows every cancellation until it is let, and then returns something."""

    async def swallows() -> str:
        note(witness.log, "begun")
        while not let.is_set():
            try:
                await let.wait()
            except asyncio.CancelledError:
                if swallowed is not None:
                    swallowed.set()
        note(witness.log, "over")
        return "late"

    return swallows


async def test_what_a_detached_tool_returns_is_dropped_and_its_end_is_told(start, witness):
    """D26: no surprise after a stop."""
    late = asyncio.Event()
    let = asyncio.Event()
    execution = start(swallowing(witness, let), _on_late_end=late.set)
    await witness.saw("begun")

    assert await execution.abort(grace_seconds=0.3) is Outcome.DETACHED

    before = await execution.ended()
    assert not late.is_set()
    let.set()
    await until(late.is_set)
    assert witness.words() == ["begun", "over"]
    assert await execution.ended() is before
    assert before.result is None


async def test_a_tool_that_swallows_it_and_returns_within_the_grace_counts_as_aborted(start, witness):
    let = asyncio.Event()
    swallowed = asyncio.Event()
    execution = start(swallowing(witness, let, swallowed))
    await witness.saw("begun")
    aborting = asyncio.create_task(execution.abort(PATIENT_GRACE_SECONDS))
    await until(swallowed.is_set)

    let.set()

    assert await aborting is Outcome.ABORTED
    assert (await execution.ended()).result is None


# -- tasks it has started


async def test_tasks_that_a_tool_has_started_are_cancelled_with_it(start, witness):
    """D2: a forgotten task ticked on 17 times after the cancel before they were tracked."""
    execution = start(tools.leave_tasks, log=witness.log, waits=True)
    await witness.saw("task", "future", "deeper")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()


async def test_tasks_that_a_tool_leaves_behind_when_it_returns_are_cancelled(start, witness):
    ended = await start(tools.leave_tasks, log=witness.log, waits=False).ended()

    assert (ended.outcome, ended.result, ended.left) == (Outcome.COMPLETED, b'"returned"', ())
    assert await witness.is_quiet()


async def test_a_task_left_behind_that_cannot_be_stopped_is_named(start, witness):
    keep: list[asyncio.Task[None]] = []

    async def leaves_a_stubborn_one() -> None:
        keep.append(asyncio.create_task(tools.swallow_async(witness.log), name="stubborn"))
        await until(witness.lines)

    ended = await start(leaves_a_stubborn_one).ended()

    assert (ended.outcome, ended.left) == (Outcome.COMPLETED, ("task stubborn",))


async def test_a_task_that_a_detached_tool_starts_is_cancelled_at_once(start, witness):
    detached = asyncio.Event()

    async def starts_one_later() -> None:
        note(witness.log, "begun")
        while not detached.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await detached.wait()
        await asyncio.gather(asyncio.create_task(tools.tick_async(witness.log)), return_exceptions=True)

    late = asyncio.Event()
    execution = start(starts_one_later, _on_late_end=late.set)
    await witness.saw("begun")

    assert await execution.abort(grace_seconds=0.2) is Outcome.DETACHED

    detached.set()
    await until(late.is_set)
    assert "tick" not in witness.words()


async def test_tasks_of_others_are_left_alone(start, witness):
    mine = asyncio.create_task(asyncio.sleep(60))
    execution = start(tools.tick_async, log=witness.log)
    await witness.saw("tick")

    await execution.abort()

    assert not mine.done()
    mine.cancel()


async def test_a_task_factory_that_was_there_before_is_still_used():
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    made = []

    def factory(loop, coroutine, **options):
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    loop.set_task_factory(factory)
    instrumentation.install(loop)
    instrumentation.install(loop)
    await asyncio.create_task(asyncio.sleep(0))
    assert len(made) == 1

    instrumentation.remove(loop)
    assert loop.get_task_factory() is factory
    loop.set_task_factory(before)


# -- threads and processes it has started


async def test_a_thread_that_cannot_be_stopped_makes_the_call_detached(start, witness):
    late = asyncio.Event()
    with Blocked() as blocked:

        async def waits_for_a_thread() -> None:
            await asyncio.to_thread(blocked.enter)

        execution = start(waits_for_a_thread, _on_late_end=late.set)
        await blocked.entered()

        assert await execution.abort(grace_seconds=0.2) is Outcome.DETACHED

        assert (await execution.ended()).left == ("Blocked.enter in a thread",)
        assert not late.is_set()
        blocked.let_go()
        await until(late.is_set)


async def test_a_checkpoint_works_in_a_thread_of_an_async_tool(start, witness):
    async def in_thread() -> None:
        await anyio.to_thread.run_sync(tools.tick_at_checkpoints, witness.log)

    execution = start(in_thread)
    await witness.saw("tick")

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED
    assert await witness.is_quiet()


async def test_processes_started_inside_an_async_tool_end_with_it(start, witness):
    """D2, D4: by plain subprocess and by asyncio, with their own environment or session, from threads too."""
    execution = start(tools.start_children_async, log=witness.log)
    await witness.saw(*tools.ASYNC_CHILDREN)

    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED

    assert await witness.is_quiet()
    assert [line.pid for line in witness.lines() if is_alive(line.pid)] == []


async def test_processes_that_an_async_tool_leaves_behind_end_when_it_returns(start, witness):
    ended = await start(tools.start_children_async, log=witness.log, waits=False).ended()

    assert (ended.outcome, ended.left) == (Outcome.COMPLETED, ())
    assert await witness.is_quiet()


async def test_processes_of_another_call_are_left_alone(start, witness, tmp_path):
    other_log = str(tmp_path / "other")
    first = start(tools.start_children_async, log=witness.log)
    second = start(tools.start_children_async, log=other_log)
    await witness.saw(*tools.ASYNC_CHILDREN)
    other = type(witness)(tmp_path / "other")
    await other.saw(*tools.ASYNC_CHILDREN)

    await first.abort()

    seen = len(other.lines())
    await until(lambda: {line.word for line in other.lines()[seen:]} == set(tools.ASYNC_CHILDREN))
    await second.abort()


# -- holding


@pytest.mark.parametrize(
    ("function", "isolation"), [(tools.tick_at_checkpoints_async, "task"), (tools.tick_at_checkpoints, "thread")]
)
async def test_hold_waits_at_the_next_checkpoint(start, witness, function, isolation):
    """D20, D28: frozen where it says so itself, and not killed, in a task or in a thread."""
    execution = start(function, log=witness.log, _isolation=isolation)
    await witness.saw("tick")

    assert await execution.hold()

    assert await witness.is_quiet(seconds=0.5)
    seen = len(witness.lines())
    await execution.resume()
    await witness.saw("tick", times=seen + 3)
    await execution.hold()
    assert await execution.abort(PATIENT_GRACE_SECONDS) is Outcome.ABORTED


async def test_a_hold_that_comes_late_is_told(start, witness):
    held, let = asyncio.Event(), asyncio.Event()

    async def checks_late() -> str:
        note(witness.log, "begun")
        await let.wait()
        await current_call().checkpoint()
        return "went on"

    execution = start(checks_late, _on_held=held.set)
    await witness.saw("begun")

    assert not await execution.hold()
    let.set()
    await until(held.is_set)
    assert await execution.hold()
    await execution.resume()

    assert (await execution.ended()).result == b'"went on"'


async def test_children_of_a_held_tool_are_frozen_with_it(start, witness):
    async def starts_and_checks() -> None:
        await asyncio.create_subprocess_exec(*tools.ticker(witness.log, "child"))
        await tools.tick_at_checkpoints_async(witness.log)

    execution = start(starts_and_checks)
    await witness.saw("child", "tick")

    assert await execution.hold()

    assert await witness.is_quiet(seconds=0.5)
    seen = len(witness.lines("child"))
    await execution.resume()
    await witness.saw("child", times=seen + 2)
    await execution.abort()
