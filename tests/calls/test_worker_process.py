"""Plain `def` tools in worker processes: always stoppable, with everything they have started."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import pytest

from checkrein.calls import imports
from checkrein.calls.executor import ToolExecutor
from checkrein.calls.workers.pool import Workers
from checkrein.core.enums import Outcome
from checkrein.errors import MisuseError
from checkrein.processes import termination
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS, PATIENT_GRACE_SECONDS, within
from tests.support.witness import is_alive, until

pytestmark = pytest.mark.anyio


# -- performing


async def test_a_call_returns_its_result_as_json(start):
    ended = await start(tools.add, a=1, b=2).ended()

    assert (ended.outcome, ended.result, ended.error) == (Outcome.COMPLETED, b"3", None)


async def test_a_failure_carries_type_message_and_traceback(start):
    ended = await start(tools.fail, message="no such customer").ended()

    assert (ended.outcome, ended.error) == (Outcome.FAILED, "ValueError: no such customer")
    assert "tools.py" in ended.traceback


@pytest.mark.parametrize("what", [tools.return_a_lock, tools.return_nan, tools.return_a_coroutine])
async def test_a_result_that_json_cannot_hold_is_an_error_that_says_so(start, what):
    ended = await start(what).ended()

    assert ended.outcome is Outcome.FAILED
    assert ended.error.startswith(f"NotJson: {what.__name__} returned a value of type ")


async def test_a_worker_is_not_given_a_token_of_ours(start, monkeypatch):
    """Whoever has it may stop runs and approve calls; a tool may not."""
    monkeypatch.setenv("CHECKREIN_TOKEN", "right-to-stop-and-approve")
    monkeypatch.setenv("SERVICE_TOKEN", "theirs")

    ended = await start(tools.look_into_environment, names=["CHECKREIN_TOKEN", "SERVICE_TOKEN"]).ended()

    assert ended.result == b'[null,"theirs"]'


async def test_what_a_tool_prints_does_not_disturb_its_result(start, capfd):
    ended = await start(tools.print_a_lot).ended()

    assert ended.result == b'"printed"'


async def test_prints_go_to_standard_error(tmp_path):
    done = run_script(tmp_path / "printer.py", SCRIPT.replace("BODY", "print('hello from the tool')\n    return 1"))

    assert "hello from the tool" in done.stderr
    assert "hello" not in done.stdout


async def test_a_worker_is_used_again_with_its_surroundings_put_back(start, tmp_path):
    first = await start(tools.identify).ended()

    changed = await start(tools.change_surroundings, folder=str(tmp_path)).ended()
    seen = await start(tools.look_at_surroundings, _id="c9", _key="run-worker/c9").ended()

    assert changed.outcome is Outcome.COMPLETED
    assert msgspec.json.decode(seen.result) == [os.getcwd(), None, "run-worker/c9@c9#1"]
    assert (await start(tools.identify).ended()).result == first.result


async def test_a_hundred_calls_at_once_share_the_pool_and_each_gets_its_own_result(start):
    performances = [start(tools.add, a=number, b=number) for number in range(100)]

    results = [(await execution.ended()).result for execution in performances]

    assert results == [str(2 * number).encode() for number in range(100)]


async def test_a_warm_call_is_quick(start):
    await start(tools.add, a=1, b=2).ended()

    took = []
    for _ in range(50):
        began = time.perf_counter()
        await start(tools.add, a=1, b=2).ended()
        took.append(time.perf_counter() - began)

    assert sorted(took)[25] < within(0.02)


# -- a worker that dies


@pytest.mark.parametrize(
    ("tool", "cause"),
    [(tools.leave_by_exit, "it left with exit status 7"), (tools.leave_by_segfault, "it was ended by SIGSEGV")],
)
async def test_a_worker_that_dies_by_itself_is_reported_as_such(start, tool, cause):
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await start(tool).ended()

    assert ended.outcome is Outcome.FAILED
    assert "died in the middle of the call" in ended.error
    assert cause in ended.error
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"


async def test_a_worker_that_is_killed_from_outside_is_reported_as_such(start, witness):
    execution = start(tools.tick, log=witness.log)
    await witness.saw("tick")

    os.kill(witness.lines()[0].pid, 9)
    ended = await execution.ended()

    assert "SIGKILL; the system may have run out of memory" in ended.error


async def test_a_failure_that_cannot_say_what_it_is_is_still_the_failure_of_its_call(start):
    """Not the death of its worker, and that not a signal."""
    ended = await start(tools.raise_unspeakable).ended()

    assert ended.outcome is Outcome.FAILED
    assert ended.error == "Unspeakable: (what it says cannot be read: its str() raised RuntimeError)"


async def test_a_daemon_without_any_environment_ends_with_a_worker_that_was_killed(start, witness):
    """As when the system has run out of memory: nobody is its parent, and no variable says whose it is."""
    execution = start(tools.flee, log=witness.log)
    await witness.saw("fled")
    await until(lambda: [line for line in witness.lines() if line.word.startswith("worker ")])
    worker = next(int(line.word.split()[1]) for line in witness.lines() if line.word.startswith("worker "))

    os.kill(worker, signal.SIGKILL)

    assert (await execution.ended()).outcome is Outcome.FAILED
    assert await witness.is_quiet()


async def test_a_worker_heeds_no_sigterm_that_its_runtime_has_not_announced(start, executor, witness):
    """A service manager that ends a service sends one to all of it; the runtime may let its calls finish."""
    assert (await start(tools.add, a=1, b=1).ended()).outcome is Outcome.COMPLETED
    execution = start(tools.tick, log=witness.log)
    await witness.saw("tick")
    await until(lambda: any(worker.is_ready for worker in executor._workers._idle))
    workers = [worker.pid for worker in executor._workers._workers]
    assert len(workers) > 1, "one that works and one that waits"

    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    seen = len(witness.lines())
    await witness.saw("tick", times=seen + 5)

    assert {worker.pid for worker in executor._workers._workers} == set(workers)
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"
    assert await execution.abort() is Outcome.KILLED


async def test_a_tool_that_becomes_another_program_is_ended_and_reported(start, witness):
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await start(tools.become_another_program, log=witness.log).ended()

    assert ended.outcome is Outcome.FAILED
    assert "died in the middle of the call" in ended.error
    assert await witness.is_quiet()


@pytest.mark.parametrize("options", [{}, {"isolation": "thread"}])
@pytest.mark.parametrize("arguments", [b"[1]", b"no json"])
async def test_arguments_that_are_no_object_are_a_failure_of_the_call(executor, options, arguments):
    ended = await executor.start(tools.add, arguments, id="c", key="k", **options).ended()

    assert ended.outcome is Outcome.FAILED


async def test_sys_exit_in_a_tool_is_a_failure_of_the_tool(start):
    ended = await start(tools.leave_by_sys_exit).ended()

    assert (ended.outcome, ended.error) == (Outcome.FAILED, "SystemExit: enough")


async def test_a_fork_that_comes_back_as_the_tool_does_not_answer_for_it(start, witness):
    ended = await start(tools.fork_and_return, log=witness.log).ended()

    assert ended.result == b"1"
    assert witness.words() == ["fork"]
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"


# -- stopping


@pytest.mark.parametrize(
    ("tool", "grace"),
    [
        (tools.tick, 2.0),
        (tools.loop_for_ever, 2.0),
        (tools.crunch, 0.3),
        (tools.ignore_sigterm, 0.3),
        (tools.swallow, 0.3),
    ],
)
async def test_a_tool_is_stopped_whatever_it_does(start, witness, tool, grace):
    """D2, D4, D22: asleep, in a busy loop, in C code, deaf to SIGTERM, catching everything."""
    execution = start(tool, log=witness.log)
    await until(witness.lines)
    pid = witness.lines()[0].pid

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await execution.abort(grace_seconds=grace)

    assert outcome is Outcome.KILLED
    assert not is_alive(pid)
    assert await witness.is_quiet()
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"


async def test_a_tool_is_given_the_grace_to_clean_up(start, witness):
    execution = start(tools.clean_up, log=witness.log)
    await witness.saw("begun")

    await execution.abort(PATIENT_GRACE_SECONDS)

    assert witness.words() == ["begun", "cleaned up"]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_everything_a_tool_has_started_ends_with_it(start, witness, stubborn):
    """D2, D4: child, grandchild, setsid, a daemon by double fork, one without any mark, a fork without exec."""
    execution = start(tools.start_everything, log=witness.log, stubborn=stubborn)
    await witness.saw(*tools.EVERYTHING)

    outcome = await execution.abort(grace_seconds=0.5)

    assert outcome is Outcome.KILLED
    assert await witness.is_quiet()
    assert [line.pid for line in witness.lines() if is_alive(line.pid)] == []


async def test_what_a_tool_leaves_behind_when_it_returns_ends_too(start, witness):
    """D26: nothing of a call goes on after it."""
    ended = await start(tools.start_everything, log=witness.log, waits=False, stubborn=False).ended()

    assert (ended.outcome, ended.left) == (Outcome.COMPLETED, ())
    assert await witness.is_quiet()
    assert not is_alive(int(ended.result))


async def test_a_thread_that_a_tool_leaves_behind_ends_with_its_worker(start, witness):
    ended = await start(tools.leave_a_thread, log=witness.log).ended()

    assert ended.outcome is Outcome.COMPLETED
    assert await witness.is_quiet()
    assert not is_alive(int(ended.result))


async def test_processes_that_flee_from_one_fork_to_the_next_are_caught(start, witness):
    """Every one of them lives for 2 ms: killing what was seen is always too late, freezing first is not."""
    execution = start(tools.start_breeding, log=witness.log)
    await witness.saw("bred", times=5)

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await execution.abort(grace_seconds=0.1)

    assert outcome is Outcome.KILLED
    assert await witness.is_quiet()


# -- aborting at odd moments


async def test_an_abort_after_the_end_changes_nothing(start):
    execution = start(tools.add, a=1, b=2)
    ended = await execution.ended()

    assert await execution.abort() is Outcome.COMPLETED
    assert await execution.ended() is ended


async def test_aborts_from_everywhere_agree(start, witness):
    execution = start(tools.tick, log=witness.log)
    await witness.saw("tick")

    outcomes = await asyncio.gather(*(execution.abort() for _ in range(10)), execution.ended())

    assert set(outcomes[:-1]) == {Outcome.KILLED}
    assert outcomes[-1].outcome is Outcome.KILLED


async def test_a_second_abort_can_shorten_the_grace(start, witness):
    execution = start(tools.ignore_sigterm, log=witness.log)
    await witness.saw("tick")
    first = asyncio.create_task(execution.abort(grace_seconds=600))
    await asyncio.sleep(0.2)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await execution.abort(grace_seconds=0.1)

    assert await first is Outcome.KILLED


async def test_a_caller_who_goes_away_does_not_take_the_abort_back(start, witness):
    execution = start(tools.ignore_sigterm, log=witness.log)
    await witness.saw("tick")
    caller = asyncio.create_task(execution.abort(grace_seconds=0.3))
    await asyncio.sleep(0.05)

    caller.cancel()

    assert (await execution.ended()).outcome is Outcome.KILLED
    assert await witness.is_quiet()


async def test_whoever_wins_a_race_between_the_end_and_an_abort_both_sides_agree(start):
    """D7: completed with its result, or killed without one."""
    for delay in range(12):
        execution = start(tools.add, a=1, b=2)
        await asyncio.sleep(delay * 0.0003)
        outcome = await execution.abort()
        ended = await execution.ended()
        assert ended.outcome is outcome
        assert (ended.result == b"3") is (outcome is Outcome.COMPLETED)


async def test_a_call_that_waits_for_a_worker_is_aborted_without_ever_beginning(tmp_path, witness):
    """D3, D26: it has certainly done nothing, and the record says so."""
    async with ToolExecutor(tmp_path / "calls", most_workers=1) as executor:
        arguments = msgspec.json.encode({"log": witness.log})
        first = executor.start(tools.tick, arguments, id="c1", key="run-worker/c1")
        await witness.saw("tick")
        second = executor.start(tools.loop_for_ever, arguments, id="c2", key="run-worker/c2")
        await asyncio.sleep(0.1)

        assert await second.abort() is Outcome.ABORTED
        assert not (await second.ended()).begun
        assert await first.abort() is Outcome.KILLED
        third = executor.start(tools.add, b'{"a":1,"b":2}', id="c3", key="run-worker/c3")
        assert (await third.ended()).result == b"3"
    assert "begun" not in witness.words()


# -- holding


async def test_hold_freezes_a_tool_with_its_children_and_go_on_continues_them(start, witness):
    """D20, D28: the log shows a gap, and the same processes afterwards."""
    execution = start(tools.start_everything, log=witness.log)
    await witness.saw(*tools.EVERYTHING)

    assert await execution.hold()

    assert await witness.is_quiet(seconds=0.5)
    before = {line.pid for line in witness.lines()}
    seen = len(witness.lines())
    await execution.resume()
    await until(lambda: {line.word for line in witness.lines()[seen:]} == set(tools.EVERYTHING))
    assert {line.pid for line in witness.lines()[seen:]} == before
    await execution.abort(grace_seconds=0.2)


async def test_a_held_tool_can_be_aborted(start, witness):
    execution = start(tools.tick, log=witness.log)
    await witness.saw("tick")
    await execution.hold()

    assert await execution.abort(grace_seconds=1) is Outcome.KILLED


async def test_a_call_that_was_held_finishes_as_if_nothing_had_been(start, witness, tmp_path):
    let = tmp_path / "let"
    execution = start(tools.wait_for, log=witness.log, file=str(let))
    await witness.saw("begun")
    assert await execution.hold()
    let.touch()
    assert await witness.is_quiet()

    await execution.resume()

    assert (await execution.ended()).result == b'"waited"'
    assert not await execution.hold()
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"


# -- the pool


async def test_closing_ends_busy_workers_and_refuses_new_calls(witness):
    workers = Workers(f"r-{uuid.uuid4().hex}")
    await workers.__aenter__()
    worker = await workers.take()

    await workers.close()

    await until(lambda: not is_alive(worker.pid))
    with pytest.raises(MisuseError, match="closed"):
        await workers.take()


async def test_idle_workers_beyond_the_warm_ones_leave_after_a_while():
    async with Workers(f"r-{uuid.uuid4().hex}", warm=1, idle_seconds=0.2) as workers:
        taken = [await workers.take() for _ in range(3)]

        for worker in taken:
            workers.give_back(worker)

        await until(lambda: sum(is_alive(worker.pid) for worker in taken) <= 1)


async def test_no_runtime_starts_inside_a_worker(monkeypatch, tmp_path):
    monkeypatch.setattr(imports._Worker, "is_one", True)

    with pytest.raises(MisuseError, match="cannot start a runtime"):
        await ToolExecutor(tmp_path).__aenter__()
    with pytest.raises(MisuseError, match="cannot start a runtime"):
        await Workers(f"r-{uuid.uuid4().hex}").__aenter__()


# -- scripts


SCRIPT = """
import asyncio, sys
from pathlib import Path
from checkrein.calls.executor import ToolExecutor as Stage

COUNT = 0

def tool():
    global COUNT
    COUNT += 1
    BODY

async def main():
    async with Stage(Path(sys.argv[0]).parent / "calls") as stage:
        for number in range(2):
            ended = await stage.start(tool, b"{}", id=f"c{number}", key=f"run-worker/c{number}").ended()
            print(ended.outcome, ended.result, ended.error)

if __name__ == "__main__":
    asyncio.run(main())
"""


def run_script(path: Path, source: str) -> subprocess.CompletedProcess[str]:
    path.write_text(source)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


async def test_a_tool_in_a_script_works(tmp_path):
    done = run_script(tmp_path / "script.py", SCRIPT.replace("BODY", "return [COUNT, __name__]"))

    assert done.stdout.splitlines() == [
        """completed b'[1,"__mp_main__"]' None""",
        """completed b'[2,"__mp_main__"]' None""",
    ], done.stderr


async def test_a_script_without_a_guard_leads_to_one_clear_error_and_no_more_processes(tmp_path):
    source = SCRIPT.replace("BODY", "return 1").replace('if __name__ == "__main__":\n    ', "")

    done = run_script(tmp_path / "bare.py", source)

    assert done.returncode == 1
    assert done.stderr.count('has no `if __name__ == "__main__":`') == 1


async def test_a_script_whose_guard_does_not_cover_the_start_leads_to_one_clear_error(tmp_path):
    """Its workers refuse to start a runtime, also when the script catches everything."""
    source = SCRIPT.replace("BODY", "return 1").replace('if __name__ == "__main__":\n    asyncio.run(main())', "")
    source += "\ntry:\n    asyncio.run(main())\nexcept BaseException:\n    pass\nif __name__ == '__main__':\n    pass\n"

    done = run_script(tmp_path / "half.py", source)

    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("failed None NotImportable: Importing")
    assert 'Put what starts the program under `if __name__ == "__main__":`' in first


async def test_a_worker_that_could_not_be_ended_is_killed_until_it_is_gone_and_only_then_its_end_is_told(
    start, witness, monkeypatch
):
    """On a machine that has much to do a kill may take longer than it is waited for. Until then its effect must not be
    undone, and nobody else would kill it."""
    late = asyncio.Event()
    execution = start(tools.tick, log=witness.log, _on_late_end=late.set)
    await witness.saw("tick")
    worker = witness.lines("tick")[0].pid

    async def in_vain(family, **_):
        return family.members()

    with monkeypatch.context() as patch:
        patch.setattr(termination, "end", in_vain)
        outcome = await execution.abort()
    was_alive = is_alive(worker)
    await asyncio.wait_for(late.wait(), PATIENCE_SECONDS)

    assert (outcome, was_alive) == (Outcome.DETACHED, True)
    assert not is_alive(worker)
