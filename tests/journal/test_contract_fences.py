"""No permit under a fence: what a cancel and a halt cover, and what they leave alone."""

from __future__ import annotations

import pytest

from checkrein.core.enums import CallKind, Status, Verb
from checkrein.errors import Conflict, Fenced
from checkrein.journal.base import Fence, Journal, Scope
from tests.journal.build import ALICE, created, driven, opened, outcome, permit, undo, undone, verb
from tests.journal.conftest import Store

pytestmark = pytest.mark.anyio

SCOPES = [(Scope.RUN, "r"), (Scope.ROOT, "r"), (Scope.AGENT, "churn"), (Scope.OWNER, "olga"), (Scope.ALL, "")]
ELSEWHERE = [(Scope.RUN, "x"), (Scope.ROOT, "x"), (Scope.AGENT, "x"), (Scope.OWNER, "x")]


async def family(journal: Journal) -> None:
    """r ── child ── grandchild, and a stranger."""
    await driven(journal, "r", owner=ALICE)
    await driven(journal, "child", parent="r", root="r")
    await driven(journal, "grandchild", parent="child", root="r")
    await driven(journal, "stranger")


async def may_begin(journal: Journal, run: str, kind: CallKind = CallKind.TOOL) -> bool:
    """Whether a permit is given, by somebody who knows all there is to know."""
    event = undo() if kind is CallKind.UNDO else permit(kind=kind)
    try:
        await journal.append(run, [event], after=len(await journal.read(run)), epoch=1)
    except Fenced:
        return False
    return True


# -- cancel


@pytest.mark.parametrize("kind", [kind for kind in CallKind if kind is not CallKind.UNDO])
async def test_no_permit_follows_a_cancel(journal: Journal, kind: CallKind):
    await driven(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)

    assert not await may_begin(journal, "r", kind)


async def test_an_undo_follows_a_cancel(journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)

    assert await may_begin(journal, "r", CallKind.UNDO)


async def test_one_call_that_is_no_undo_makes_the_whole_append_fenced(journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)

    with pytest.raises(Fenced):
        await journal.append("r", [undo(), permit()], after=2, epoch=1)

    assert len(await journal.read("r")) == 2


async def test_facts_are_taken_under_a_fence_and_the_refusal_says_so(journal: Journal):
    await driven(journal)
    cancel = await journal.append("r", [verb(Verb.CANCEL)], after=1)
    facts = [outcome("a"), undone("a")]

    with pytest.raises(Fenced) as refused:
        await journal.append("r", [*facts, permit("b"), opened("b")], after=2, epoch=1)

    assert [record.event for record in refused.value.committed] == facts
    assert refused.value.missed == refused.value.committed
    assert await journal.read("r", after=1) == cancel.events + refused.value.committed


async def test_who_has_not_seen_the_cancel_is_told_of_it(journal: Journal):
    await driven(journal)
    cancel = await journal.append("r", [verb(Verb.CANCEL)], after=1)

    with pytest.raises(Conflict) as refused:
        await journal.append("r", [permit()], after=1, epoch=1)

    assert refused.value.missed == cancel.events


async def test_a_cancel_fences_every_descendant_and_nobody_else(journal: Journal):
    await family(journal)

    await journal.append("child", [verb(Verb.CANCEL)], after=1)

    assert [await may_begin(journal, run) for run in ("r", "child", "grandchild", "stranger")] == [
        True,
        False,
        False,
        True,
    ]


async def test_no_sub_run_is_created_below_a_cancelled_run(journal: Journal):
    await family(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)

    for parent in ("r", "child", "grandchild"):
        with pytest.raises(Fenced):
            await journal.create(created("late", parent=parent, root="r"))
    await journal.create(created("fine", parent="stranger", root="stranger"))


async def test_a_refused_cancel_fences_nothing(journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.REDIRECT, status=Status.QUEUED)], after=1)
    with pytest.raises(Conflict):
        await journal.append("r", [verb(Verb.CANCEL)], after=1)

    assert await may_begin(journal, "r")


async def test_other_verbs_fence_nothing(journal: Journal):
    await driven(journal)
    for kind, status in (
        (Verb.PAUSE, Status.PAUSED),
        (Verb.RESUME, Status.RUNNING),
        (Verb.ASK, Status.RUNNING),
        (Verb.REDIRECT, Status.REDIRECTING),
    ):
        await journal.append("r", [verb(kind, status=status)], after=len(await journal.read("r")))

    assert await may_begin(journal, "r")


async def test_the_fence_of_a_cancel_cannot_be_lifted_and_is_not_listed(journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)

    assert not await journal.unfence(Scope.RUN, "r")

    assert await journal.fences() == ()
    assert not await may_begin(journal, "r")


# -- halt


@pytest.mark.parametrize(("scope", "name"), SCOPES)
async def test_a_halt_stops_every_call_in_its_scope_undos_too(journal: Journal, store: Store, scope: Scope, name: str):
    await driven(journal, "r", owner=ALICE, agent="churn")
    await journal.create(created("owned", owner="olga"))
    await journal.claim("owned", ALICE, seconds=60)
    run = "owned" if scope is Scope.OWNER else "r"

    await store.open().fence(Fence(scope=scope, name=name))

    assert not await may_begin(journal, run)
    assert not await may_begin(journal, run, CallKind.UNDO)


@pytest.mark.parametrize(("scope", "name"), SCOPES)
async def test_a_halt_also_covers_runs_created_later(journal: Journal, scope: Scope, name: str):
    await journal.fence(Fence(scope=scope, name=name))

    with pytest.raises(Fenced):
        await journal.create(created("r", owner="olga"))


@pytest.mark.parametrize(("scope", "name"), ELSEWHERE)
async def test_a_halt_elsewhere_changes_nothing(journal: Journal, scope: Scope, name: str):
    await driven(journal)

    await journal.fence(Fence(scope=scope, name=name))

    assert await may_begin(journal, "r")


@pytest.mark.parametrize("scope", [Scope.RUN, Scope.ROOT])
async def test_a_halt_of_a_run_reaches_its_descendants_and_so_does_its_end(journal: Journal, scope: Scope):
    await family(journal)

    await journal.fence(Fence(scope=scope, name="r"))
    assert not any([await may_begin(journal, run) for run in ("r", "child", "grandchild")])
    assert await may_begin(journal, "stranger")

    assert await journal.unfence(scope, "r")
    assert all([await may_begin(journal, run) for run in ("r", "child", "grandchild")])


async def test_a_sub_run_of_a_halted_agents_run_is_not_created_whatever_its_own_agent(journal: Journal):
    await driven(journal, "r")
    await journal.fence(Fence(scope=Scope.AGENT, name="churn"))

    with pytest.raises(Fenced):
        await journal.create(created("sub", parent="r", root="r", agent="other"))


async def test_a_halt_as_a_verb_is_a_halt(journal: Journal):
    await family(journal)

    await journal.append("child", [verb(Verb.HALT, by="op", reason="fire", at=5.0)], after=1)

    assert await journal.fences() == (Fence(scope=Scope.RUN, name="child", by="op", reason="fire", at=5.0),)
    assert await may_begin(journal, "r")
    await journal.unfence(Scope.RUN, "child")
    assert await may_begin(journal, "grandchild", CallKind.UNDO)


async def test_a_halt_stays_latched_until_it_is_lifted(journal: Journal, store: Store):
    fence = Fence(scope=Scope.AGENT, name="churn", by="op", reason="fire", at=5.0)
    await journal.fence(fence)
    await journal.fence(Fence(scope=Scope.AGENT, name="churn", by="somebody else", at=6.0))

    assert await store.open().fences() == (fence,)

    assert await journal.unfence(Scope.AGENT, "churn")
    assert not await journal.unfence(Scope.AGENT, "churn")
    assert await journal.fences() == ()
    await journal.create(created("r"))


async def test_lifting_a_halt_leaves_the_cancel_below_it(journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.CANCEL)], after=1)
    await journal.fence(Fence(scope=Scope.RUN, name="r"))
    assert not await may_begin(journal, "r", CallKind.UNDO)

    await journal.unfence(Scope.RUN, "r")

    assert await may_begin(journal, "r", CallKind.UNDO)
    assert not await may_begin(journal, "r")


async def test_a_fence_of_another_journal_on_the_same_store_counts_at_once(journal: Journal, store: Store):
    await driven(journal)
    other = store.open()
    assert await may_begin(journal, "r")  # it has just looked, and there was none

    await other.fence(Fence(scope=Scope.ALL))

    assert not await may_begin(journal, "r")
