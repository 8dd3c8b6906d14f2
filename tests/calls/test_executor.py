"""Where a tool runs, and how its values travel."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import json
import uuid
from pathlib import Path

import msgspec
import pytest

from checkrein.calls import arguments
from checkrein.calls.base import CallResult
from checkrein.calls.executor import Isolation, ToolExecutor, isolation_of
from checkrein.core.enums import Outcome
from checkrein.errors import NotImportable
from tests.support import tools


def test_an_async_def_is_a_task_and_a_def_a_process_unless_its_author_chose_a_thread():
    assert isolation_of(tools.tick_async) is Isolation.TASK
    assert isolation_of(functools.partial(tools.tick_async, "log")) is Isolation.TASK
    assert isolation_of(tools.tick) is Isolation.PROCESS
    assert isolation_of(tools.tick, "thread") is Isolation.THREAD


@pytest.mark.parametrize(("tool", "wanted"), [(tools.tick_async, "thread"), (tools.tick, "task")])
def test_a_wish_that_cannot_be_granted_is_refused(tool, wanted):
    with pytest.raises(ValueError, match=tool.__name__):
        isolation_of(tool, wanted)


@pytest.mark.anyio
async def test_a_function_no_worker_can_import_is_refused_before_anything_starts(start):
    with pytest.raises(NotImportable):
        start(lambda: 1)


@pytest.mark.anyio
async def test_an_ending_is_what_a_driver_expects(start):
    assert isinstance(await start(tools.add, a=1, b=2).ended(), CallResult)


@pytest.mark.anyio
async def test_what_is_kept_is_made_once_and_closed_with_the_stage(tmp_path: Path):
    made, closed = [], []

    class Session:
        def __init__(self):
            made.append(self)

        async def close(self):
            closed.append(self)

    async with ToolExecutor(tmp_path / "calls") as executor:
        first = executor.keep("notes", Session)
        assert executor.keep("notes", Session) is first
        assert executor.keep("wiki", Session) is not first
        assert len(made) == 2
        assert closed == []

    assert set(closed) == set(made)


# -- values


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


class Pair(msgspec.Struct):
    a: int
    b: Colour


class Model:
    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


def test_what_authors_return_becomes_plain_json():
    known = uuid.UUID(int=1)
    value = [Point(1, datetime.date(2026, 1, 2)), Pair(1, Colour.RED), Model(), {3, 1}, Path("/a"), known, ("é",)]

    encoded = arguments.encode_result(tools.add, value)

    expected = [{"x": 1, "when": "2026-01-02"}, {"a": 1, "b": "red"}, {"mode": "json"}, [1, 3], "/a", str(known), ["é"]]
    assert json.loads(encoded) == expected


@pytest.mark.parametrize("bad", [object(), float("inf"), {(1, 2): 3}, b"bytes", [print]])
def test_what_json_cannot_hold_is_named_with_its_tool(bad):
    with pytest.raises(arguments.NotJson, match=r"^add returned a value of type "):
        arguments.encode_result(tools.add, bad)


def test_arguments_are_an_object():
    assert arguments.plain_arguments(b"null") == {}
    with pytest.raises(arguments.NotJson, match="not a list"):
        arguments.plain_arguments(b"[1]")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "isolation"), [(tools.return_much, None), (tools.return_much, "thread"), (tools.return_much_async, None)]
)
async def test_a_result_that_is_too_large_is_a_failure_that_says_so(tmp_path, tool, isolation):
    async with ToolExecutor(tmp_path / "calls", result_bytes=1_000) as executor:
        options = {"id": "c1", "key": "run-executor/c1", "isolation": isolation}
        fits = await executor.start(tool, b'{"length": 998}', **options).ended()
        ended = await executor.start(tool, b'{"length": 999}', **options).ended()

    assert (fits.outcome, len(fits.result or b"")) == (Outcome.COMPLETED, 1_000)
    assert (ended.outcome, ended.result) == (Outcome.FAILED, None)
    assert (ended.error or "").startswith(f"ResultTooLarge: {tool.__name__} returned more than 1,000 bytes of JSON")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tool", "given"),
    [(tools.return_much_async, b'{"length": 20000000}'), (tools.return_many_async, b'{"count": 6000000}')],
)
async def test_a_huge_result_is_refused_before_it_is_encoded_on_the_event_loop(monkeypatch, executor, tool, given):
    monkeypatch.setattr(arguments, "_encoded", lambda *_: pytest.fail("it was encoded"))

    ended = await executor.start(tool, given, id="c1", key="run-executor/c1").ended()

    assert (ended.error or "").startswith("ResultTooLarge: ")
