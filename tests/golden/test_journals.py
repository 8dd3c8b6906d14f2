"""Runs leave the journals that they left before: to the byte without a runtime, normalised with one."""

from __future__ import annotations

import pytest

from checkrein import Runtime
from tests.golden.compare import DATA, assert_as_recorded
from tests.golden.scenarios import SCENARIOS, played
from tests.golden.stories import STORIES, written


@pytest.mark.parametrize("name", STORIES)
def test_a_story_gives_the_same_bytes_the_same_hashes_and_the_same_state(name: str) -> None:
    assert_as_recorded(f"stories/{name}.txt", written(STORIES[name]()))


@pytest.mark.anyio
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_run_leaves_the_same_journal(name: str, staged: Runtime) -> None:
    assert_as_recorded(f"journals/{name}.txt", await played(staged, SCENARIOS[name]))


def test_nothing_is_recorded_that_is_no_longer_compared() -> None:
    recorded = {
        path.relative_to(DATA).as_posix() for part in ("stories", "journals") for path in (DATA / part).iterdir()
    }

    assert recorded == {f"stories/{name}.txt" for name in STORIES} | {f"journals/{name}.txt" for name in SCENARIOS}


def test_a_difference_is_shown_with_how_to_record_it_again() -> None:
    with pytest.raises(AssertionError) as told:
        assert_as_recorded("stories/halt.txt", written(STORIES["halt"]()).replace("killed", "stopped"))

    assert '"killed"' in str(told.value)
    assert "python -m tests.golden.record stories" in str(told.value)
