"""What a tool sees of its call, the same in a worker, a thread and a task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from checkrein.calls import files
from checkrein.calls.base import StopWait
from checkrein.calls.current import current_call
from checkrein.core.enums import Outcome
from checkrein.errors import MisuseError
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = pytest.mark.anyio

PLAIN = [pytest.param({}, id="process"), pytest.param({"_isolation": "thread"}, id="thread")]
ALL = [
    pytest.param(("describe_call", {}), id="process"),
    pytest.param(("describe_call", {"_isolation": "thread"}), id="thread"),
    pytest.param(("describe_call_async", {}), id="task"),
]
WRITERS = [
    pytest.param((tools.write_files, {}), id="process"),
    pytest.param((tools.write_files, {"_isolation": "thread"}), id="thread"),
    pytest.param((tools.write_files_async, {}), id="task"),
]
SHIELDED = [
    pytest.param((tools.shielded, {}), id="process"),
    pytest.param((tools.shielded, {"_isolation": "thread"}), id="thread"),
    pytest.param((tools.shielded_async, {}), id="task"),
]


@pytest.mark.parametrize("how", ALL)
async def test_a_tool_knows_its_call(start, how):
    name, options = how

    ended = await start(getattr(tools, name), x=5, _id="c7", _key="run/c7", _attempt=3, **options).ended()

    assert json.loads(ended.result) == ["c7", "run/c7", 3, {"x": 5}, 5]


def test_outside_a_tool_there_is_no_call():
    with pytest.raises(MisuseError, match="no current call"):
        current_call()


# -- files


def kept(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("how", WRITERS)
async def test_files_appear_when_the_call_has_succeeded_and_the_scratch_folder_vanishes(
    start, executor, witness, tmp_path, how
):
    tool, options = how
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.txt").write_text("the old one")

    ended = await start(tool, log=witness.log, folder=str(folder), ending="return", **options).ended()

    assert ended.outcome is Outcome.COMPLETED
    assert kept(folder) == {"report.txt": "the whole report"}
    [scratch] = [Path(word.split()[1]) for word in witness.words()]
    assert not scratch.exists()
    assert list(executor.folder.iterdir()) == []


@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.parametrize("ending", ["raise", "wait"])
async def test_after_a_failure_or_an_abort_everything_is_as_it_was(start, executor, witness, tmp_path, how, ending):
    """D5: no half-written state, also when the writer was killed in the middle of a file."""
    tool, options = how
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.txt").write_text("the old one")
    execution = start(tool, log=witness.log, folder=str(folder), ending=ending, **options)

    if ending == "wait":
        await witness.saw("half")
        assert (folder / "report.txt").read_text() == "the old one"
        await execution.abort()
    ended = await execution.ended()

    assert ended.outcome in (Outcome.FAILED, Outcome.ABORTED, Outcome.KILLED)
    assert kept(folder) == {"report.txt": "the old one"}
    assert list(executor.folder.iterdir()) == []


def test_a_later_process_can_clean_up_after_a_call_whose_runtime_died(tmp_path):
    call, out = tmp_path / "call", tmp_path / "out"
    out.mkdir()
    writer = files.CallFiles(call)
    writer.scratch()
    with writer.write(out / "a", "w") as file:
        file.write("a")
    context = writer.write(out / "b", "w")
    context.__enter__().write("half")
    with (call / "writes").open("ab") as torn:
        torn.write(b'["begun", "/never/')

    files.discard(call)
    files.discard(call)

    assert (list(out.iterdir()), call.exists()) == ([], False)
    with pytest.raises(FileNotFoundError):
        context.__exit__(None, None, None)


def test_a_file_that_is_replaced_keeps_its_mode_and_a_link_its_place(tmp_path):
    goal, link = tmp_path / "goal", tmp_path / "link"
    goal.write_text("old")
    goal.chmod(0o640)
    link.symlink_to(goal)
    writer = files.CallFiles(tmp_path / "call")

    with writer.write(link, "w") as file:
        file.write("new")
    files.publish(tmp_path / "call")

    assert (goal.read_text(), goal.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o640, True)


def test_a_block_that_raises_drops_its_file_alone(tmp_path):
    writer = files.CallFiles(tmp_path / "call")

    with writer.write(tmp_path / "good", "w") as file:
        file.write("good")
    with pytest.raises(ZeroDivisionError), writer.write(tmp_path / "bad", "w") as file:
        raise ZeroDivisionError
    files.publish(tmp_path / "call")

    assert [path.name for path in tmp_path.iterdir()] == ["good"]


async def test_a_file_that_cannot_be_published_makes_the_call_fail(start, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()

    def writes_and_removes() -> None:
        with current_call().write(folder / "a") as file:
            file.write("a")
        for path in folder.iterdir():
            path.unlink()

    ended = await start(writes_and_removes, _isolation="thread").ended()

    assert ended.outcome is Outcome.FAILED
    assert "a file could not be published" in ended.error


# -- settling


@pytest.mark.parametrize("options", PLAIN)
async def test_a_tool_says_that_its_effect_is_to_stay(start, witness, options):
    ended = await start(tools.settle_and, log=witness.log, waits=False, **options).ended()

    assert ended.settled
    assert not (await start(tools.add, a=1, b=2, **options).ended()).settled


async def test_what_was_settled_before_a_kill_is_known(start, witness):
    execution = start(tools.settle_and, log=witness.log, waits=True)
    await witness.saw("settled")

    assert await execution.abort() is Outcome.KILLED

    assert (await execution.ended()).settled


# -- shields


async def aborted_in_its_shield(start, witness, how, let, *, then_sleeps):
    """A tool in a shielded section that lasts until the file `let` is there, and an abort that waits for it."""
    tool, options = how
    execution = start(tool, log=witness.log, seconds=50, file=str(let), then_sleeps=then_sleeps, **options)
    await witness.saw("entered")
    await until(lambda: getattr(execution, "_shields", True))  # and a worker's word of it has come
    aborting = asyncio.create_task(execution.abort())
    await until(lambda: execution.waits_for is not None)
    return execution, aborting


@pytest.mark.parametrize("how", SHIELDED)
async def test_an_abort_waits_for_a_shielded_section_and_says_so(start, witness, tmp_path, how):
    """The atomic section of the table: the verb waits, the page says for what and at most how long."""
    let = tmp_path / "let"
    execution, aborting = await aborted_in_its_shield(start, witness, how, let, then_sleeps=True)

    assert execution.waits_for == StopWait("a shielded section", 50)
    let.touch()
    assert await aborting in (Outcome.ABORTED, Outcome.KILLED)

    assert witness.words() == ["entered", "left"]
    assert execution.waits_for is None


@pytest.mark.parametrize("how", SHIELDED)
async def test_an_abort_does_not_wait_longer_than_was_promised(start, witness, how):
    tool, options = how
    execution = start(tool, log=witness.log, seconds=0.3, file=f"{witness.log}.never", then_sleeps=False, **options)
    await witness.saw("entered")

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await execution.abort(grace_seconds=0.5)

    assert outcome is not Outcome.COMPLETED
    assert witness.words() == ["entered"]


@pytest.mark.parametrize("how", SHIELDED)
async def test_a_tool_that_returns_from_its_shielded_section_has_finished(start, witness, tmp_path, how):
    """The receipt may say: finished."""
    let = tmp_path / "let"
    execution, aborting = await aborted_in_its_shield(start, witness, how, let, then_sleeps=False)

    let.touch()
    outcome = await aborting

    assert outcome is (await execution.ended()).outcome
    assert witness.words() == ["entered", "left"]
    if how[0] is tools.shielded_async:
        assert (await execution.ended()).result == b'"finished"'


async def test_shields_cannot_put_a_stop_off_for_ever(start, witness):
    """D16: once a stop was asked for, no new section begins."""
    execution = start(tools.shield_again_and_again, log=witness.log)
    await witness.saw("entered")

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await execution.abort(grace_seconds=0.3)

    assert outcome is Outcome.DETACHED  # it swallows, too
    assert await witness.is_quiet()


@pytest.mark.parametrize("seconds", [0, -1, 61])
async def test_a_shield_has_a_sensible_length(start, seconds):
    async def shields() -> None:
        async with current_call().shield(seconds=seconds):
            pass

    assert "up to 60 seconds" in (await start(shields).ended()).error
