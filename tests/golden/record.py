"""Records what the tests of this folder compare with: `python -m tests.golden.record [part ...]`.

    stories     runs without a runtime, to the byte
    journals    runs on the real runtime, normalised
    readings    what the recorded stores say
    schemas     events, state, receipts, errors, verbs, public names
    cli         what `checkrein --help` says
    http        the description of the API, and its streams
    worlds      how many worlds the search of `tests/core/explore` visits
    stores      files that this version wrote

Without a part, all but the last. It has to be named: a store is there to be read by later versions, so that recording
it again throws away what it was kept for. After `stores`, record `readings` and `http`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.golden import worlds
from tests.golden.compare import record
from tests.golden.readings import reading
from tests.golden.scenarios import SCENARIOS, played, stage
from tests.golden.stores import MAKE, record_stores
from tests.golden.stories import STORIES, written
from tests.golden.surface import STREAMS, TEXTS


def stories() -> None:
    for name, tell in STORIES.items():
        record(f"stories/{name}.txt", written(tell()))


def journals() -> None:
    async def play_all() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with stage(Path(folder)) as runtime:
                for name, play in SCENARIOS.items():
                    record(f"journals/{name}.txt", await played(runtime, play))

    asyncio.run(play_all())


def readings() -> None:
    for name in MAKE:
        with tempfile.TemporaryDirectory() as folder:
            record(f"readings/{name}.json", asyncio.run(reading(name, Path(folder))))


def texts_of(part: str) -> Callable[[], None]:
    def record_texts() -> None:
        for name, text in TEXTS.items():
            if name.startswith(f"{part}/"):
                record(name, text())
        for name, stream in STREAMS.items():
            if name.startswith(f"{part}/"):
                with tempfile.TemporaryDirectory() as folder:
                    record(name, asyncio.run(stream(Path(folder))))

    return record_texts


PARTS: Final[Mapping[str, Callable[[], None]]] = {
    "stories": stories,
    "journals": journals,
    "stores": record_stores,
    "readings": readings,
    "schemas": texts_of("schemas"),
    "cli": texts_of("cli"),
    "http": texts_of("http"),
    "worlds": lambda: record(worlds.FILE, worlds.search_small()),
}
ONLY_WHEN_NAMED: Final = frozenset({"stores"})


def main(named: list[str]) -> None:
    for part in named or [part for part in PARTS if part not in ONLY_WHEN_NAMED]:
        if part not in PARTS:
            sys.exit(f"There is no part {part}; there are: {', '.join(PARTS)}.")
        PARTS[part]()
        print(part)


if __name__ == "__main__":
    main(sys.argv[1:])
