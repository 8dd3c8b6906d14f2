"""What a finished run still takes, and what becomes of effects."""

from __future__ import annotations

import pytest

from checkrein.core.enums import EffectState, Outcome, Status, Verb
from checkrein.errors import RunNotFound, RunOver
from checkrein.journal.base import Journal
from tests.journal import build

pytestmark = pytest.mark.anyio

OPEN, SETTLED, UNDONE, LEFT = EffectState.OPEN, EffectState.SETTLED, EffectState.UNDONE, EffectState.LEFT


# -- the end


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED])
async def test_a_finished_run_takes_no_verb_no_permit_and_no_late_outcome(journal: Journal, status: Status):
    lease = await build.over(journal, "r", status)

    for event in (
        build.verb(Verb.CANCEL),
        build.verb(),
        build.permit(),
        build.outcome(),
        build.started(lease.epoch),
        build.ended(),
        build.opened(),
    ):
        with pytest.raises(RunOver) as refused:
            await journal.append("r", [event], after=1, epoch=lease.epoch)
        assert [record.seq for record in refused.value.missed] == [2]
        assert refused.value.committed == ()

    assert len(await journal.read("r")) == 2


async def test_a_finished_run_still_takes_undos_answers_resolutions_and_reasons(journal: Journal):
    lease = await build.over(journal, "r", Status.CANCELLED)
    events = [
        build.reason(),
        build.answered(),
        build.resolved(),
        build.reopened(),
        build.undo(),
        build.outcome("undo:c1"),
        build.undone(),
        build.settled_effect("d"),
    ]

    appended = await journal.append("r", events, after=2, epoch=lease.epoch)

    assert [record.event for record in appended.events] == events
    assert (await journal.runs())[0].status is Status.CANCELLED


async def test_nothing_of_an_append_is_taken_when_a_finished_run_refuses_part_of_it(journal: Journal):
    lease = await build.over(journal)

    with pytest.raises(RunOver):
        await journal.append("r", [build.reason(), build.outcome()], after=2, epoch=lease.epoch)

    assert len(await journal.read("r")) == 2


# -- effects


async def states(journal: Journal, *only: EffectState) -> dict[str, EffectState]:
    return {effect.id: effect.state for effect in await journal.effects("r", only)}


async def test_effects_are_indexed_as_they_open_and_change(journal: Journal):
    lease = await build.driven(journal)
    for call in ("b", "a", "c"):
        seq = len(await journal.read("r"))
        await journal.append("r", [build.permit(call), build.opened(call)], after=seq, epoch=lease.epoch)
    await journal.append("r", [build.undone("a"), build.settled_effect("c")], after=7, epoch=lease.epoch)

    assert list((await states(journal)).items()) == [("b", OPEN), ("a", UNDONE), ("c", SETTLED)]
    assert await states(journal, OPEN, SETTLED) == {"b": OPEN, "c": SETTLED}
    [effect] = await journal.effects("r", [OPEN])
    assert (effect.what, effect.undo, effect.key) == ("a draft (b)", "m:f", "b")


async def test_an_effect_opened_again_is_one_effect_and_the_newest(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.opened("a"), build.opened("b"), build.opened("a")], after=1, epoch=lease.epoch)

    assert list(await states(journal)) == ["b", "a"]


async def test_an_undone_effect_stays_undone(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.opened("a")], after=1, epoch=lease.epoch)
    await journal.append("r", [build.undone("a"), build.settled_effect("a")], after=2, epoch=lease.epoch)

    assert await states(journal) == {"a": UNDONE}


async def test_an_effect_nobody_opened_is_not_indexed(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.undone("ghost")], after=1, epoch=lease.epoch)

    assert await states(journal) == {}


@pytest.mark.parametrize(
    ("status", "becomes"), [(Status.COMPLETED, SETTLED), (Status.FAILED, LEFT), (Status.CANCELLED, LEFT)]
)
async def test_effects_still_open_at_the_end_are_settled_or_left(
    journal: Journal, status: Status, becomes: EffectState
):
    lease = await build.driven(journal)
    await journal.append("r", [build.opened("a"), build.opened("b")], after=1, epoch=lease.epoch)
    doubtful = build.outcome("b", outcome=Outcome.IN_DOUBT)
    await journal.append("r", [doubtful, build.undone("b")], after=3, epoch=lease.epoch)

    await journal.append("r", [build.ended(status)], after=5, epoch=lease.epoch)

    assert await states(journal) == {"a": becomes, "b": UNDONE}


async def test_an_effect_that_was_left_may_be_reopened_and_undone_after_the_end(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.opened("a")], after=1, epoch=lease.epoch)
    await journal.append("r", [build.ended(Status.CANCELLED)], after=2, epoch=lease.epoch)
    assert await states(journal) == {"a": LEFT}

    await journal.append("r", [build.reopened("a")], after=3)
    [effect] = await journal.effects("r")
    assert (effect.state, effect.wanted) == (OPEN, True)

    await journal.append("r", [build.undone("a")], after=4, epoch=lease.epoch)
    assert await states(journal) == {"a": UNDONE}


async def test_a_refused_append_changes_no_effect(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.verb()], after=1)

    with pytest.raises(Exception, match="decide again"):
        await journal.append("r", [build.permit("a"), build.opened("a")], after=1, epoch=lease.epoch)

    assert await states(journal) == {}


async def test_a_run_that_is_not_there_has_no_effects(journal: Journal):
    with pytest.raises(RunNotFound):
        await journal.effects("nobody")
