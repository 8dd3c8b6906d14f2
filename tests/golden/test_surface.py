"""What others depend on is as it was: names, codes, schemas, verbs, commands and HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.compare import assert_as_recorded
from tests.golden.surface import STREAMS, TEXTS


@pytest.mark.parametrize("name", TEXTS)
def test_what_others_depend_on_is_as_recorded(name: str) -> None:
    assert_as_recorded(name, TEXTS[name]())


@pytest.mark.anyio
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_sends_the_same_frames(name: str, tmp_path: Path) -> None:
    assert_as_recorded(name, await STREAMS[name](tmp_path))
