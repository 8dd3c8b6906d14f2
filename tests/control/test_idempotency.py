"""A request whose answer was lost is made again with its id: it is found, answered, and done once.

The witness is the journal: how many events there are, and of which ids. Nobody drives the run, so nothing else is
written.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from checkrein.control.control import Control
from checkrein.core import events as e
from checkrein.core.commands import SettleVerb
from checkrein.core.enums import Answer, CallKind, Outcome, Status
from checkrein.core.receipts import Receipt
from checkrein.core.verb_specs import SPECS, VerbSpec
from checkrein.errors import Refused
from checkrein.journal import open_journal
from checkrein.journal.base import Journal, Owner
from checkrein.journal.commands import take_command
from checkrein.journal.memory import MemoryJournal
from checkrein.processes.identity import this_process

pytestmark = pytest.mark.anyio

RUN = "r-1"
ID = "click-00000001"
OTHER = "click-00000002"

CALLS = {
    "approve": "asks", "deny": "asks", "resolve": "doubted", "check": "doubted", "abort": "works", "retry_undo": "left",
}  # fmt: skip
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "redirect": ("only Q3",), "ask": ("How far are you?",), "add_reason": ("too slow",), "resolve": (Answer.HAPPENED,),
}  # fmt: skip

named_verbs = [spec for spec in SPECS.values() if spec.has_request_id]
stops = [SPECS[verb] for verb in ("pause", "cancel", "abort")]


@pytest.fixture
def owner() -> Owner:
    """A living driver that does nothing: the test itself."""
    return this_process()


@pytest.fixture
async def journal(owner: Owner) -> Journal:
    """A run in which every verb on a call has a call to be about."""
    journal = await open_journal("memory:")
    await journal.create(e.RunCreated(id="created", at=now(), run=RUN, agent="a", goal="g", thread=RUN))
    lease = await journal.claim(RUN, owner, seconds=600)
    epoch = lease.epoch

    def started(call: str) -> e.Event:
        return e.CallStarted(id=f"{call} starts", at=now(), call=call, kind=CallKind.TOOL, name=call, epoch=epoch)

    def ended(call: str, outcome: Outcome) -> e.Event:
        return e.CallFinished(id=f"{call} ends", at=now(), call=call, outcome=outcome, owner_dead=True)

    def opened(call: str) -> e.Event:
        return e.EffectOpened(id=f"{call} opens", at=now(), effect=call, what=call, undo="somewhere:undo")

    for event in (
        e.RunStarted(id="started", at=now(), epoch=epoch, status=Status.RUNNING),
        started("works"),
        e.ApprovalRequested(id="asks", at=now(), call="asks", name="asks", fingerprint=""),
        started("doubted"),
        opened("doubted"),
        ended("doubted", Outcome.IN_DOUBT),
        e.EffectInDoubt(id="doubted is in doubt", at=now(), effect="doubted"),
        started("left"),
        opened("left"),
        ended("left", Outcome.COMPLETED),
        e.EffectLeft(id="left is left", at=now(), effect="left", why="its undo failed"),
    ):
        await journal.append(RUN, [event], after=(await journal.load(RUN)).seq, epoch=epoch)
    return journal


def now() -> float:
    return time.time()


async def ready_for(spec: VerbSpec, journal: Journal, owner: Owner) -> Control:
    """Control over a run in a status in which the verb is possible."""
    control = Control(journal, msgspec.structs.replace(owner, process="control"))
    if spec.name == "resume":
        await control.pause(RUN, by="ann", wait=0)
    if spec.name == "retry_undo":
        state = await journal.load(RUN)
        finished = e.RunFinished(id="finished", at=now(), status=Status.COMPLETED)
        await journal.append(RUN, [finished], after=state.seq, epoch=state.epoch)
    return control


async def use(control: Control, spec: VerbSpec, request_id: str, call: str | None = None) -> Any:
    target = (call or CALLS[spec.name],) if spec.target == "call" else ()
    wait = {} if spec.wait is None else {"wait": 0.0}
    verb = getattr(control, spec.name)
    return await verb(RUN, *target, *ARGUMENTS.get(spec.name, ()), by="ann", request_id=request_id, **wait)


@pytest.mark.parametrize("spec", named_verbs, ids=lambda spec: spec.name)
async def test_a_repeat_is_answered_and_does_nothing_twice(spec: VerbSpec, journal: Journal, owner: Owner) -> None:
    control = await ready_for(spec, journal, owner)

    first = await use(control, spec, ID)
    after_one = await journal.read(RUN)
    second = await use(control, spec, ID)

    assert any(record.event.id == ID for record in after_one)
    assert await journal.read(RUN) == after_one
    assert type(first) is type(second)
    if spec.answers == "receipt":
        assert first == second


@pytest.mark.parametrize("spec", named_verbs, ids=lambda spec: spec.name)
async def test_requests_that_are_made_at_the_same_moment_are_one(
    spec: VerbSpec, journal: Journal, owner: Owner
) -> None:
    """As when the first one is still under way, perhaps in another process of the server."""
    controls = [await ready_for(spec, journal, owner), Control(journal, msgspec.structs.replace(owner, process="more"))]

    answers = await asyncio.gather(*(use(control, spec, ID) for control in controls * 3))

    assert len(answers) == 6
    assert len([record for record in await journal.read(RUN) if record.event.id == ID]) == 1


@pytest.mark.parametrize("spec", named_verbs, ids=lambda spec: spec.name)
async def test_a_request_that_is_taken_elsewhere_just_after_it_was_looked_up_is_no_refusal(
    spec: VerbSpec, journal: Journal, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = await ready_for(spec, journal, owner)
    find, looked = MemoryJournal.find, list[str]()

    async def late(self: MemoryJournal, run: str, event_id: str) -> Any:
        looked.append(event_id)
        if len(looked) == 1:
            await use(Control(journal, msgspec.structs.replace(owner, process="elsewhere")), spec, event_id)
            return None
        return await find(self, run, event_id)

    monkeypatch.setattr(MemoryJournal, "find", late)

    await use(control, spec, ID)

    assert len([record for record in await journal.read(RUN) if record.event.id == ID]) == 1


@pytest.mark.parametrize("spec", [spec for spec in named_verbs if spec not in stops], ids=lambda spec: spec.name)
async def test_an_id_that_was_used_for_something_else_gets_nobody_that_answer(
    spec: VerbSpec, journal: Journal, owner: Owner
) -> None:
    other = SPECS["cancel" if spec.name == "add_reason" else "add_reason"]
    control = await ready_for(spec, journal, owner)
    await use(control, other, ID)
    before = await journal.read(RUN)

    with pytest.raises(Refused) as refused:
        await use(control, spec, ID)

    assert refused.value.code == "request_id_used"
    assert await journal.read(RUN) == before


@pytest.mark.parametrize("spec", stops, ids=lambda spec: spec.name)
async def test_a_stop_is_taken_although_its_id_was_used_for_something_else_and_a_repeat_of_it_is_a_look_up(
    spec: VerbSpec, journal: Journal, owner: Owner
) -> None:
    control = await ready_for(spec, journal, owner)
    await use(control, SPECS["add_reason"], ID)

    first = await use(control, spec, ID)
    after_one = await journal.read(RUN)
    second = await use(control, spec, ID)

    (taken,) = [r.event for r in after_one if isinstance(r.event, e.VerbAccepted)]
    assert taken.verb.value == spec.name
    assert taken.id.startswith(f"{ID}.{spec.name}")
    assert first.accepted == taken.id, "whoever asked is told under which id it was taken"
    assert first == second
    assert await journal.read(RUN) == after_one


async def test_a_cancel_is_taken_whatever_ids_were_used(journal: Journal, owner: Owner) -> None:
    control = await ready_for(SPECS["cancel"], journal, owner)
    await use(control, SPECS["add_reason"], ID)
    await use(control, SPECS["add_reason"], f"{ID}.cancel")

    await use(control, SPECS["cancel"], ID)

    assert (await journal.load(RUN)).status is Status.CANCELLING


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_a_repeat_of_a_verb_that_joined_another_is_answered_and_does_nothing(
    verb: str, journal: Journal, owner: Owner
) -> None:
    spec = SPECS[verb]
    control = await ready_for(spec, journal, owner)
    first = await use(control, spec, OTHER)

    joined = await use(control, spec, ID)
    after_one = await journal.read(RUN)
    again = await use(control, spec, ID)

    assert first == joined == again
    assert await journal.read(RUN) == after_one
    assert [r.event.accepted for r in after_one if isinstance(r.event, e.VerbJoined)] == [OTHER]
    other = SPECS["add_reason"]
    with pytest.raises(Refused):
        await use(control, other, ID)


async def test_a_repeat_of_a_pause_that_joined_another_is_no_new_pause_after_a_resume(
    journal: Journal, owner: Owner
) -> None:
    control = await ready_for(SPECS["pause"], journal, owner)
    await use(control, SPECS["pause"], OTHER)
    await use(control, SPECS["pause"], ID)
    await settle_pause(journal, OTHER)
    await control.resume(RUN, by="ann", wait=0)
    before = await journal.read(RUN)

    again = await control.pause(RUN, by="ann", request_id=ID, wait=5)

    assert isinstance(again, Receipt)
    assert again.status is Status.PAUSED, "the receipt of the pause that it had joined"
    assert (await journal.load(RUN)).status is Status.RUNNING
    assert await journal.read(RUN) == before


async def settle_pause(journal: Journal, accepted: str) -> None:
    """What a driver does once the calls of the run have come to rest."""
    state = await journal.load(RUN)
    ended = e.CallFinished(id="works ends", at=now(), call="works", outcome=Outcome.COMPLETED)
    await journal.append(RUN, [ended], after=state.seq, epoch=state.epoch)
    settle = SettleVerb(id="settled", at=now(), accepted=accepted)
    await take_command(journal, RUN, lambda state, effects: settle, epoch=state.epoch)


async def test_a_pause_whose_id_looks_like_one_of_a_parent_is_a_persons_own(journal: Journal, owner: Owner) -> None:
    """It would be resumed with a parent that nobody paused it with. A repeat is a look-up all the same."""
    control = Control(journal, owner)
    await control.pause(RUN, by="ann", request_id=f"{e.HELD_PREFIX}{ID}", wait=0)

    state = await journal.load(RUN)
    await control.pause(RUN, by="ann", request_id=f"{e.HELD_PREFIX}{ID}", wait=0)

    assert not state.is_held
    assert (await journal.load(RUN)).seq == state.seq


async def test_an_id_is_that_of_one_call(journal: Journal, owner: Owner) -> None:
    spec = SPECS["approve"]
    control = await ready_for(spec, journal, owner)
    await use(control, spec, ID)

    with pytest.raises(Refused) as refused:
        await use(control, spec, ID, call="another")

    assert refused.value.code == "request_id_used"


@pytest.mark.parametrize("verb", ["pause", "approve", "add_reason"])
async def test_a_request_is_looked_up_once_and_one_without_an_id_not_at_all(
    verb: str, journal: Journal, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, looked = SPECS[verb], list[str]()
    control = await ready_for(spec, journal, owner)
    find = MemoryJournal.find

    async def counted(self: MemoryJournal, run: str, event_id: str) -> Any:
        looked.append(event_id)
        return await find(self, run, event_id)

    monkeypatch.setattr(MemoryJournal, "find", counted)

    await use(control, spec, OTHER)
    assert looked == [OTHER]
    await use(control, SPECS["add_reason"], "")
    assert looked == [OTHER]


async def test_a_refusal_is_in_the_log_with_the_run_and_the_call(
    journal: Journal, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "checkrein.control.control")
    spec = SPECS["approve"]
    control = await ready_for(spec, journal, owner)

    with pytest.raises(Refused):
        await use(control, spec, ID, call="works")

    (line,) = [one for one in caplog.records if "refused" in one.message]
    assert (vars(line)["run"], vars(line)["call"]) == (RUN, "works")
    assert "not_waiting" in line.message
