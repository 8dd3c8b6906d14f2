"""Everything that can happen next in a world."""

from __future__ import annotations

from collections.abc import Iterator

from checkrein.core import commands as c
from checkrein.core.decide import decide
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, Outcome, Status, Verb
from checkrein.core.events import CallAnswered, Json
from checkrein.core.orders import Abort, Detach, Hold, LetGoOn, Order, Settle, TakeAnswer, UndoEffect, orders
from checkrein.core.state import State
from checkrein.journal.admission import answer_id
from tests.torture.explore.world import (
    AS_ASKED,
    AS_WANTED,
    Bounds,
    Driver,
    Hand,
    Kind,
    Loaded,
    World,
    append,
    call_index,
    is_driven,
    perform,
    vouch,
)

Step = tuple[str, World]

_LATE = 1_000_000.0


def moves(world: World, bounds: Bounds) -> Iterator[Step]:
    for n, driver in enumerate(world.drivers):
        if world.drivers.index(driver) < n:
            continue  # the same as an earlier one in every respect
        yield from _of_driver(world, bounds, n, driver)
    for run in world.below:
        yield f"sub-run {run} is over", world._replace(below=tuple(other for other in world.below if other != run))
    yield from _claim_in_vain(world)
    yield from _of_people(world, bounds)
    yield from _of_control(world, bounds)


# -- drivers


def _of_driver(world: World, bounds: Bounds, n: int, driver: Driver) -> Iterator[Step]:
    if driver.frozen:
        yield "wake", _put(world, n, driver._replace(frozen=False))
        return
    if driver.epoch == 0:
        yield from _claim(world, bounds, n)
        return
    if world.left.crashes:
        left = world.left._replace(crashes=world.left.crashes - 1)
        yield "crash", _put(world, n, Driver())._replace(left=left, dead=world.dead | {driver.epoch})
    if world.left.freezes and (driver.hands or driver.epoch == world.epoch):
        left = world.left._replace(freezes=world.left.freezes - 1)
        yield "freeze", _put(world, n, driver._replace(frozen=True))._replace(left=left)
    for hand in driver.hands:
        if not hand.performed and not hand.held:
            yield f"perform {hand.call}", _performed(world, bounds, n, driver, hand)
    for hand in driver.hands:
        live = world.state.live.get(hand.call)
        if hand.hung and (live is None or live.epoch != driver.epoch):
            yield f"late end of {hand.call}", _ended_late(world, n, driver, hand)
    if driver.epoch < world.epoch:
        yield from _answer(world, n, driver)
    if driver.epoch == world.epoch or (bounds.rash and driver.behind):
        yield from _work(world, bounds, n, driver)


def _claim(world: World, bounds: Bounds, n: int) -> Iterator[Step]:
    """A run with no living, waking owner is claimed by anybody who can drive it, and taken over at once."""
    if is_driven(world) or not world.left.claims or not _needs_driver(world):
        return
    epoch = world.epoch + 1
    claimed = _put(world, n, Driver(epoch=epoch))._replace(
        epoch=epoch, left=world.left._replace(claims=world.left.claims - 1)
    )
    events = decide(world.state, c.TakeOver(id=f"t{epoch}", at=0.0, epoch=epoch, over=_known_dead(world, bounds)))
    assert isinstance(events, tuple)
    taken = append(claimed, events, epoch=epoch, driver=n)
    yield f"claim {epoch}", claimed if taken is None else taken


def _known_dead(world: World, bounds: Bounds) -> frozenset[int]:
    return frozenset() if bounds.remote else world.dead


def _claim_in_vain(world: World) -> Iterator[Step]:
    """Somebody claims a run with no living, waking owner, and dies before it has taken the run over."""
    if world.left.vain and not is_driven(world):
        epoch, left = world.epoch + 1, world.left._replace(vain=world.left.vain - 1)
        yield f"claim {epoch} in vain", world._replace(epoch=epoch, dead=world.dead | {epoch}, left=left)


def _needs_driver(world: World) -> bool:
    if not world.state.is_finished:
        return True
    return bool(orders(world.state, world.effects)) or any(
        live.kind is CallKind.UNDO for live in world.state.live.values()
    )


def _performed(world: World, bounds: Bounds, n: int, driver: Driver, hand: Hand) -> World:
    hands = tuple(h._replace(performed=True) if h == hand else h for h in driver.hands)
    kind = bounds.calls[call_index(hand.call)]
    held = _put(world, n, driver._replace(hands=hands))
    return perform(held, hand.call, kind, by_owner=driver.epoch == world.epoch)


def _ended_late(world: World, n: int, driver: Driver, hand: Hand) -> World:
    """A call that was let go has ended after all: its driver says so, whoever has the run by now."""
    without = driver._replace(hands=tuple(h for h in driver.hands if h != hand))
    ended = CallAnswered(
        id=answer_id(hand.call, driver.epoch), at=0.0, call=hand.call, epoch=driver.epoch, outcome=Outcome.DETACHED
    )
    let_go = _put(world, n, without)
    return append(let_go, [ended], epoch=driver.epoch, driver=n) or let_go


def _answer(world: World, n: int, driver: Driver) -> Iterator[Step]:
    """A driver that finds out it no longer owns the run says what it did and lets everything go, one call at a time."""
    if not driver.hands:
        yield "give up", _put(world, n, Driver())
        return
    hand = next((h for h in driver.hands if not h.hung), None)
    if hand is None:
        return  # those are answered for when they have ended
    without = driver._replace(hands=tuple(h for h in driver.hands if h != hand))
    if hand.call.startswith("undo:"):
        yield f"drop {hand.call}", _put(world, n, without)
        return
    answer = CallAnswered(
        id=answer_id(hand.call, driver.epoch),
        at=0.0,
        call=hand.call,
        epoch=driver.epoch,
        outcome=Outcome.COMPLETED if hand.performed else Outcome.ABORTED,
        began=hand.performed,
    )
    after = append(_put(world, n, without), [answer], epoch=driver.epoch, driver=n)
    if after is not None:
        yield f"answer {hand.call}", after


def _work(world: World, bounds: Bounds, n: int, driver: Driver) -> Iterator[Step]:
    if driver.behind and driver.epoch == world.epoch:
        yield "notice", _put(world, n, driver._replace(behind=False, view=None))
    if world.left.failures and not driver.failed and not world.state.is_finished:
        left = world.left._replace(failures=world.left.failures - 1)
        yield "the program fails", _put(world, n, driver._replace(failed=True))._replace(left=left)
    for hand in driver.hands:
        if hand.performed and not hand.hung and not hand.held:
            yield from _report(world, n, driver, hand, Outcome.COMPLETED)
    # What is decided without having noticed is refused by the journal, so only the rash try it.
    if driver.behind and not bounds.rash:
        return
    seen = world.state if driver.view is None else driver.view
    held = _held(driver)
    for order in orders(seen, world.effects, at=_time_left(world), held=held, told_to_hold=held, below=world.below):
        yield from _obey(world, n, driver, order)
    yield from _permits(world, bounds, n, driver, seen)
    yield from _finish(world, bounds, n, driver, seen)


def _append(world: World, n: int, driver: Driver, command: c.Command, label: str) -> Iterator[Step]:
    """What comes of a command of driver `n`, who will be `driver` if it is taken."""
    verdict = decide(world.state if driver.view is None else driver.view, command)
    if isinstance(verdict, tuple):
        after = append(_put(world, n, driver), verdict, epoch=driver.epoch, driver=n, behind=driver.behind)
        if after is not None:
            yield label, after


def _report(world: World, n: int, driver: Driver, hand: Hand, outcome: Outcome) -> Iterator[Step]:
    """The outcome of a call goes to the journal, perhaps twice; a second time it is refused and dropped."""
    without = driver._replace(hands=tuple(h for h in driver.hands if h != hand))
    seen = world.state if driver.view is None else driver.view
    events = decide(seen, c.FinishCall(id=f"f{hand.call}", at=0.0, call=hand.call, outcome=outcome))
    if not isinstance(events, tuple):
        yield f"drop the second {hand.call}", _put(world, n, without)
        return
    after = append(_put(world, n, without), events, epoch=driver.epoch, driver=n)
    if after is not None:
        yield f"{outcome.value} {hand.call}", after
    if world.left.duplicates:
        left = world.left._replace(duplicates=world.left.duplicates - 1)
        kept = driver._replace(hands=(*without.hands, hand._replace(performed=True)))
        after = append(_put(world, n, kept)._replace(left=left), events, epoch=driver.epoch, driver=n)
        if after is not None:
            yield f"{outcome.value} {hand.call}, unheard", after


def _time_left(world: World) -> float:
    """Time runs out for a cancel only when there is nothing left to do but wait."""
    hung = {hand.call for d in world.drivers if d.epoch == world.epoch for hand in d.hands if hand.hung}
    due = orders(world.state, world.effects, below=world.below)
    is_due = any(not (isinstance(order, Abort) and order.call in hung) for order in due)
    return 0.0 if is_due or not hung.issuperset(world.state.live) else _LATE


def _obey(world: World, n: int, driver: Driver, order: Order) -> Iterator[Step]:
    match order:
        case Abort(call=call):
            hand = next((h for h in driver.hands if h.call == call), None)
            if hand is not None and not hand.hung:
                yield from _report(world, n, driver, hand, Outcome.ABORTED)
                yield from _hang(world, n, driver, hand)
        case Hold(call=call) | LetGoOn(call=call):
            # One that has ended, and has not said so yet, is frozen with its last word.
            hands = tuple(h._replace(held=isinstance(order, Hold)) if h.call == call else h for h in driver.hands)
            if hands != driver.hands:
                yield f"{type(order).__name__} {call}", _put(world, n, driver._replace(hands=hands))
        case Detach(call=call):
            detach = c.FinishCall(id=f"d{call}", at=0.0, call=call, outcome=Outcome.DETACHED)
            yield from _append(world, n, driver, detach, f"detach {call}")
        case UndoEffect(effect=effect):
            yield from _undo(world, n, driver, effect)
        case TakeAnswer(call=call, answer=answer):
            command = c.ResolveCall(id=f"a{call}", at=0.0, by="owner", call=call, answer=answer)
            yield from _append(world, n, driver, command, f"take answer {call}")
        case Settle(verb=verb):
            settle = c.SettleVerb(
                id=f"s{verb.id}", at=_time_left(world), accepted=verb.id, effects=world.effects, below=world.below
            )
            yield from _append(world, n, driver, settle, f"settle {verb.id}")
        case _:
            pass


def _held(driver: Driver) -> frozenset[str]:
    return frozenset(hand.call for hand in driver.hands if hand.held)


def _hang(world: World, n: int, driver: Driver, hand: Hand) -> Iterator[Step]:
    """The call does not answer. It still has its permit, and may use it."""
    if world.left.hangs and not hand.call.startswith("undo:"):
        left = world.left._replace(hangs=world.left.hangs - 1)
        hands = tuple(h._replace(hung=True) if h == hand else h for h in driver.hands)
        yield f"{hand.call} does not answer", _put(world, n, driver._replace(hands=hands))._replace(left=left)


def _undo(world: World, n: int, driver: Driver, effect: Effect) -> Iterator[Step]:
    command = c.StartUndo(
        id="u", at=0.0, epoch=driver.epoch, effect=effect.id, effects=world.effects, below=world.below
    )
    with_hand = driver._replace(hands=(*driver.hands, Hand(f"undo:{effect.id}")))
    yield from _append(world, n, with_hand, command, f"undo {effect.id}")
    if world.left.undo_failures:
        left = world.left._replace(undo_failures=world.left.undo_failures - 1)
        leave = c.LeaveEffect(id="l", at=0.0, effect=effect.id, effects=world.effects, why="it failed")
        yield from _append(world._replace(left=left), n, driver, leave, f"leave {effect.id}")


def _permits(world: World, bounds: Bounds, n: int, driver: Driver, seen: State) -> Iterator[Step]:
    if driver.failed:
        return
    due = [(f"c{world.begun}", 1)] if world.begun < len(bounds.calls) else []
    again = [(call, one.attempt) for call, one in seen.again.items()]
    for call, attempt in (*due, *again):
        kind = bounds.calls[call_index(call)]
        if kind.asks and attempt == 1:
            ask = c.RequestApproval(id=f"{call}.approval", at=0.0, call=call, name=ASKING, fingerprint=AS_ASKED)
            yield from _append(world, n, driver, ask, f"ask about {call}")
        for fingerprint in (AS_ASKED, AS_WANTED) if kind.asks else ("",):
            command = _start(call, kind, attempt, driver.epoch, fingerprint, delivers=seen.instruction is not None)
            with_hand = driver._replace(hands=(*driver.hands, Hand(call)))
            yield from _append(world, n, with_hand, command, f"permit {call}.{attempt} {fingerprint}")


ASKING = "asking"
"""The name of the tool that asks."""


def _start(call: str, kind: Kind, attempt: int, epoch: int, fingerprint: str, *, delivers: bool) -> c.StartCall:
    effect = Effect(id=call, what=call, undo="undo" if kind.undo else None) if kind.has_effect else None
    return c.StartCall(
        id=f"p{call}",
        at=0.0,
        epoch=epoch,
        call=call,
        kind=kind.kind,
        name=ASKING if kind.asks else call,
        attempt=attempt,
        fingerprint=fingerprint,
        needs_approval=kind.asks,
        idempotent=kind.idempotent,
        on_pause=kind.on_pause,
        opens=effect,
        delivers=delivers,
    )


def _finish(world: World, bounds: Bounds, n: int, driver: Driver, seen: State) -> Iterator[Step]:
    """The program ends when it has made all its calls and waits for none. When it fails its calls are stopped first."""
    if driver.failed:
        calls = [hand for hand in driver.hands if not hand.call.startswith("undo:")]
        for hand in calls:
            if not hand.hung:
                yield from _report(world, n, driver, hand, Outcome.ABORTED)
                yield from _hang(world, n, driver, hand)
        if not calls:
            fail = c.FinishRun(id="end", at=0.0, status=Status.FAILED, undelivered_ok=True, effects=world.effects)
            yield from _append(world, n, driver, fail, "fail")
        return
    if world.begun == len(bounds.calls) and not seen.again and not driver.hands:
        command = c.FinishRun(id="end", at=0.0, status=Status.COMPLETED, undelivered_ok=True)
        yield from _append(world, n, driver, command, "complete")


# -- people


def _of_people(world: World, bounds: Bounds) -> Iterator[Step]:
    for loaded in world.session:
        session = tuple(other for other in world.session if other is not loaded)
        at_desk = world._replace(session=session)
        if loaded.behind:
            yield "look again", at_desk._replace(session=(*session, Loaded(loaded.verb, world.state)))
        else:
            yield from _click(at_desk, loaded.verb, loaded.view)
    for verb in _verbs_at_hand(world):
        paid = _pay(world, verb)
        if not bounds.controllers:
            yield from _click(paid, verb, world.state)
        elif len(world.session) < bounds.controllers:
            yield f"look ({verb.value})", paid._replace(session=(*world.session, Loaded(verb, world.state)))
    yield from _resolutions(world)
    yield from _answers(world)
    if world.left.fences:
        left = world.left._replace(fences=world.left.fences - 1)
        yield "cancel above", world._replace(left=left, fenced=True, stopped=True)
    if world.left.halts:
        yield from _halt(world)


def _verbs_at_hand(world: World) -> tuple[Verb, ...]:
    """A person always has one cancel left, whatever was used up."""
    if world.left.verbs:
        return (Verb.PAUSE, Verb.RESUME, Verb.REDIRECT, Verb.CANCEL)
    return () if world.cancelled or any(loaded.verb is Verb.CANCEL for loaded in world.session) else (Verb.CANCEL,)


def _pay(world: World, verb: Verb) -> World:
    if not world.left.verbs:
        return world
    return world._replace(left=world.left._replace(verbs=world.left.verbs - 1))


def _click(world: World, verb: Verb, view: State) -> Iterator[Step]:
    name = _free_name(world, verb)
    driven = is_driven(world)
    command: c.Command
    match verb:
        case Verb.PAUSE:
            command = c.PauseRun(id=name, at=0.0, by="p")
        case Verb.RESUME:
            command = c.ResumeRun(id=name, at=0.0, by="p", driven=driven)
        case Verb.REDIRECT:
            command = c.RedirectRun(id=name, at=0.0, by="p", instruction="x", driven=driven)
        case _:
            command = c.CancelRun(id=name, at=0.0, by="p")
    verdict = decide(view, command)
    if isinstance(verdict, tuple):
        after = append(world, verdict, epoch=None)
        if after is not None:
            yield name, after


def _free_name(world: World, verb: Verb) -> str:
    """An id that no pending verb has; settled ones are forgotten, so that worlds do not differ by them."""
    taken = {pending.id for pending in world.state.verbs}
    return next(name for n in range(len(taken) + 1) if (name := f"{verb.value}{n}") not in taken)


def _resolutions(world: World) -> Iterator[Step]:
    """A person who was asked gives a true answer, and answers for it that nobody performs the call any more."""
    for call, doubt in world.state.doubts.items():
        if not doubt.person:
            continue
        real = world.outside[call_index(call)]
        truth = Answer.HAPPENED if real.performed else Answer.DID_NOT_HAPPEN
        for answer in (truth, Answer.UNDO):
            command = c.ResolveCall(id=f"r{call}", at=0.0, by="p", call=call, answer=answer)
            verdict = decide(world.state, command)
            if isinstance(verdict, tuple):
                vouched = vouch(world, call)
                after = append(vouched, verdict, epoch=None)
                if after is not None:
                    yield f"resolve {call} {answer.value}", after


def _answers(world: World) -> Iterator[Step]:
    """A person who is asked agrees, to this call or to all of its tool, agrees to something else, or does not."""
    wanted: c.Command
    for call in world.state.approvals:
        name = f"a{call}"
        for label, wanted in (
            ("approve", c.ApproveCall(id=name, at=0.0, by="p", call=call, fingerprint=AS_ASKED)),
            ("approve always", c.ApproveCall(id=name, at=0.0, by="p", call=call, always=True)),
            ("edit", c.ApproveCall(id=name, at=0.0, by="p", call=call, arguments=Json(b"{}"), edited=AS_WANTED)),
            ("approve what was not shown", c.ApproveCall(id=name, at=0.0, by="p", call=call, fingerprint=AS_WANTED)),
            ("deny", c.DenyCall(id=name, at=0.0, by="p", call=call)),
        ):
            verdict = decide(world.state, wanted)
            if isinstance(verdict, tuple):
                after = append(world, verdict, epoch=None)
                if after is not None:
                    yield f"{label} {call}", after


def _halt(world: World) -> Iterator[Step]:
    """An operator takes the lease by force, and then nobody else can begin anything."""
    claimed = world._replace(epoch=world.epoch + 1, left=world.left._replace(halts=world.left.halts - 1))
    verdict = decide(world.state, c.HaltRun(id="halt", at=0.0, by="o"))
    if isinstance(verdict, tuple):
        after = append(claimed, verdict, epoch=claimed.epoch)
        if after is not None:
            yield "halt", after


# -- control, where no driver lives


def _of_control(world: World, bounds: Bounds) -> Iterator[Step]:
    """Control claims a run without a living owner, settles what needs no user code, and releases it."""
    if is_driven(world) or not world.state.verbs:
        return
    epoch = world.epoch + 1
    over = _known_dead(world, bounds)
    verdict = decide(world.state, c.TakeOver(id=f"t{epoch}", at=0.0, epoch=epoch, over=over, drives=False))
    assert isinstance(verdict, tuple)
    after = world._replace(epoch=epoch)
    after = append(after, verdict, epoch=epoch) or after
    settled = _settle_all(after, epoch)
    if settled is not after:
        yield "control settles", settled


def _settle_all(world: World, epoch: int) -> World:
    for order in orders(world.state, world.effects, below=world.below):
        if isinstance(order, Settle) and world.state.verb(order.verb.id) is not None:
            command = c.SettleVerb(
                id=f"s{order.verb.id}", at=0.0, accepted=order.verb.id, effects=world.effects, below=world.below
            )
            verdict = decide(world.state, command)
            if isinstance(verdict, tuple):
                world = append(world, verdict, epoch=epoch) or world
    return world


def _put(world: World, n: int, driver: Driver) -> World:
    return world._replace(drivers=(*world.drivers[:n], driver, *world.drivers[n + 1 :]))
