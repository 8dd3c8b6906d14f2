"""What a journal keeps as it is, whatever it holds: text that some stores do not take, and what is large or long."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.core.enums import Verb
from checkrein.core.events import RunCreated, VerbAccepted
from checkrein.errors import RunNotFound
from checkrein.journal import Journal
from checkrein.journal.base import Chunk, Fence, Scope
from tests.journal.build import ALICE, created, driven, outcome, permit, verb
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

LONG = 10_000
PER_APPEND = 500

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).map(lambda text: f"{text}\0{text}")
"""Each with a NUL in it."""


async def test_text_with_a_nul_is_kept_wherever_people_and_models_write(journal: Journal):
    nul = "a\0b"
    await journal.create(created("r", goal=nul, thread=nul, owner=nul))
    await journal.claim("r", ALICE, seconds=60)
    await journal.append("r", [outcome("c", nul)], after=1, epoch=1)
    await journal.append("r", [verb(reason=nul, id="v")], after=2)
    await journal.write_chunks({"r": [Chunk(nul, 0, nul)]})
    await journal.fence(Fence(scope=Scope.OWNER, name=nul, reason=nul))

    [row] = await journal.runs(thread=nul, search=nul)
    assert (row.goal, row.thread, row.owner) == (nul, nul, nul)
    found = await journal.find("r", "v")
    assert found is not None
    assert isinstance(found.event, VerbAccepted)
    assert found.event.reason == nul
    assert await journal.find("r", nul) is None
    assert await journal.chunks("r", nul) == (Chunk(nul, 0, nul),)
    assert [(fence.name, fence.reason) for fence in await journal.fences()] == [(nul, nul)]
    assert await journal.find(nul, "x") is None
    assert await journal.verify("r") == 3


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXT, min_size=1, max_size=5))
async def test_whatever_is_written_is_read_to_the_letter(journal: Journal, texts: list[str]):
    run = f"r{len(await journal.runs(limit=1000))}"
    await driven(journal, run, goal=texts[0])
    events = [outcome("c", text, error=text) for text in texts]
    begun, asked = permit(name=texts[-1]), verb(Verb.PAUSE, reason=texts[0])
    await journal.append(run, [*events, begun], after=1, epoch=1)
    await journal.append(run, [asked], after=len(texts) + 2)
    await journal.write_chunks({run: [Chunk(text, place, text) for place, text in enumerate(texts)]})

    first, *others, last = await journal.read(run)

    assert isinstance(first.event, RunCreated)
    assert first.event.goal == texts[0]
    assert [record.event for record in others] == [*events, begun]
    assert last.event == asked
    assert [chunk.text for chunk in await journal.chunks(run, texts[0])] == [t for t in texts if t == texts[0]]
    assert await journal.verify(run) == len(texts) + 3


async def test_events_of_a_megabyte_are_kept_and_followed(journal: Journal):
    await driven(journal)
    follower = journal.follow("r", after=1)
    large = [outcome(f"c{number}", chr(97 + number) * 1_000_000) for number in range(3)]

    await journal.append("r", large[:2], after=1, epoch=1)
    await journal.append("r", [large[2], permit()], after=3, epoch=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        heard = [await anext(follower) for _ in range(4)]
    assert [record.event for record in heard[:3]] == large
    assert [record.body for record in await journal.read("r", after=1)] == [record.body for record in heard]
    assert await journal.verify("r") == (await journal.load("r")).seq == 5


async def test_a_run_of_10_000_events_is_read_followed_loaded_and_verified(journal: Journal):
    await driven(journal)
    events = [outcome(f"c{number}", number) for number in range(1, LONG)]
    for begin in range(0, len(events), PER_APPEND):
        await journal.append("r", events[begin : begin + PER_APPEND], after=begin + 1, epoch=1)

    records = await journal.read("r")
    with anyio.fail_after(PATIENCE_SECONDS):
        follower = journal.follow("r", after=LONG // 2)
        followed = [await anext(follower) for _ in range(LONG // 2)]

    assert [record.event for record in records[1:]] == events
    assert [record.seq for record in records] == list(range(1, LONG + 1))
    assert tuple(followed) == records[LONG // 2 :]
    assert (await journal.load("r")).seq == await journal.verify("r") == LONG
    assert (await journal.load("r")).seq == LONG  # with the snapshot that the first has left


# -- files of calls


async def test_a_file_is_kept_as_it_is_and_writing_it_again_replaces_it(journal: Journal):
    await journal.create(created("r"))
    body = bytes(range(256)) * 100

    await journal.write_file("r", "c1", 0, b"an earlier try")
    await journal.write_file("r", "c1", 0, body)
    await journal.write_file("r", "c1#2", 0, b"")

    assert await journal.file("r", "c1", 0) == body
    assert await journal.file("r", "c1#2", 0) == b""
    assert [await journal.file("r", *place) for place in (("c1", 1), ("c2", 0), ("c1\0", 0))] == [None] * 3


async def test_a_file_of_a_run_that_is_not_there_is_dropped(journal: Journal):
    for run in ("nobody", "no\0body"):
        await journal.write_file(run, "c1", 0, b"lost")
        with pytest.raises(RunNotFound):
            await journal.file(run, "c1", 0)
