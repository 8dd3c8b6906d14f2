"""Whether a race was fair: one winner, both sides told, and every receipt true.

What the sides were told is compared with the journal, and the journal with what the tools and the model say about
themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from checkrein import Receipt, RunFailed
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, EffectState, Outcome, Status, Undo, Verb
from checkrein.core.events import CallFinished, CallStarted, EffectUndone, Event, RunFinished, VerbAccepted, VerbSettled
from checkrein.errors import Refused
from checkrein.journal.base import Recorded
from tests.torture.races.race import Raced, Told
from tests.torture.races.racers import RESULT

E = TypeVar("E", bound=Event)


class Foul(AssertionError):
    """A rule that was broken, and by which run."""


class Referee:
    """Looks at one race. `log` is what the tools, the undos and the model wrote themselves, in order."""

    def __init__(
        self, raced: Raced, records: Sequence[Recorded], effects: Sequence[Effect], log: Sequence[str]
    ) -> None:
        self._raced = raced
        self._records = records
        self._effects = effects
        self._log = log
        self._accepted = {event.id: (seq, event) for seq, event in self._of(VerbAccepted)}
        self._settled = {event.accepted: event for _, event in self._of(VerbSettled)}

    def judge(self) -> Status:
        """How the run ended. Raises `Foul`."""
        end = self._one_end()
        self._verbs_are_settled_once()
        for told in self._raced.told:
            self._was_told_the_truth(told, end)
        self._the_program_was_told_the_same(end)
        self._cancel_wins_or_completion(end)
        self._nothing_begins_after_a_cancel()
        self._undone_is_what_should_be(end)
        return end.status

    # -- the rules

    def _one_end(self) -> RunFinished:
        ends = [event for _, event in self._of(RunFinished)]
        self._rule(len(ends) == 1, f"it has {len(ends)} ends")
        return ends[0]

    def _verbs_are_settled_once(self) -> None:
        counts = Counter(event.accepted for _, event in self._of(VerbSettled))
        for accepted, (seq, event) in self._accepted.items():
            self._rule(counts[accepted] == 1, f"{event.verb} was settled {counts[accepted]} times")
            after = next(s for s, settled in self._of(VerbSettled) if settled.accepted == accepted)
            self._rule(after > seq, f"{event.verb} was settled before it was accepted")
        self._rule(counts.keys() <= self._accepted.keys(), "a verb was settled that was never accepted")

    def _was_told_the_truth(self, told: Told, end: RunFinished) -> None:
        answer, verb = told.answer, told.move.verb
        accepted = self._acceptance(told)
        if isinstance(answer, Refused):
            self._rule(accepted is None, f"{verb} was refused and accepted")
            self._refusal_is_true(told, answer, end)
            return
        self._rule(isinstance(answer, Receipt), f"{verb} was answered with {answer!r}")
        assert isinstance(answer, Receipt)
        self._rule(answer.verb == verb, f"{verb} got the receipt of {answer.verb}")
        known = [event.receipt for event in self._settled.values()]
        self._rule(answer in known, f"{verb} got a receipt that is not in the journal")
        if accepted is not None:
            self._rule(answer == self._settled[accepted.id].receipt, f"{verb} got the receipt of another")
        self._receipt_is_true(told, answer, end)

    def _refusal_is_true(self, told: Told, refused: Refused, end: RunFinished) -> None:
        if told.move.verb == "abort" and refused.code in ("not_in_flight", "not_now"):
            return
        if refused.code == "not_now" and self._accepted_verbs(Verb.CANCEL):
            self._rule("cancelling" in str(refused), f"{told.move.verb} was not told of the cancel: {refused}")
            return
        self._rule(refused.code == "finished", f"{told.move.verb} was refused as {refused.code}: {refused}")
        self._rule(end.status.value in str(refused), f"{told.move.verb} was not told how the run ended: {refused}")

    def _receipt_is_true(self, told: Told, receipt: Receipt, end: RunFinished) -> None:
        self._rule(receipt.run == self._raced.run, "the receipt is of another run")
        settled = next(seq for seq, event in self._of(VerbSettled) if event.receipt == receipt)
        outcomes = {event.call: event.outcome for seq, event in self._of(CallFinished) if seq < settled}
        for call in receipt.calls:
            told_of = f"{receipt.verb} says that {call.name} is {call.now}"
            self._rule(call.now == outcomes.get(call.id), f"{told_of}, the journal says {outcomes.get(call.id)}")
        if receipt.superseded_by is not None:
            self._rule(receipt.superseded_by in self._accepted, f"{receipt.verb} was superseded by nothing")
            return
        match receipt.verb:
            case Verb.CANCEL:
                self._rule(receipt.status is Status.CANCELLED, f"cancel has a receipt that says {receipt.status}")
                ledger = {effect.id: effect.state for effect in self._effects}
                for effect in receipt.effects:
                    self._rule(ledger[effect.id] == effect.now, f"cancel says {effect.what} is {effect.now}")
            case Verb.PAUSE:
                self._rule(receipt.status is Status.PAUSED, f"pause has a receipt that says {receipt.status}")
            case Verb.ABORT:
                # Between the look at the run and the abort the call may have ended by itself: then nothing is stopped.
                late = [event.call for seq, event in self._of(CallFinished) if seq > receipt.seq][:1]
                stopped = [call.id for call in receipt.calls]
                self._rule(stopped == [c for c in late if c == "c1"], f"abort of c1 says that it stopped {stopped}")
            case Verb.REDIRECT:
                self._delivery_is_true(told, receipt)

    def _delivery_is_true(self, told: Told, receipt: Receipt) -> None:
        self._rule(receipt.delivered is not None, "redirect does not say whether the instruction was given")
        was_heard = f"heard {told.instruction}" in self._log
        is_alone = len(self._raced.told) == 1
        if is_alone or was_heard:  # a later verb may stop the call that carries it before the model is asked
            self._rule(receipt.delivered is was_heard, f"delivered: {receipt.delivered}, heard: {was_heard}")

    def _the_program_was_told_the_same(self, end: RunFinished) -> None:
        result = self._raced.result
        if end.status is Status.COMPLETED:
            self._rule(result == RESULT, f"it completed, and its result was {result!r}")
            self._rule(end.result is not None and bytes(end.result) == b'"done"', "its result was not recorded")
        else:
            self._rule(isinstance(result, RunFailed), f"it was {end.status}, and yet its result was {result!r}")
            assert isinstance(result, RunFailed)
            status: Any = getattr(result, "status", None)
            self._rule(status is end.status, f"it was {end.status}, and whoever waited was told {status}")
            self._rule(end.result is None, f"it was {end.status}, and a result was recorded")

    def _cancel_wins_or_completion(self, end: RunFinished) -> None:
        cancels = self._accepted_verbs(Verb.CANCEL)
        expected = Status.CANCELLED if cancels else Status.COMPLETED
        self._rule(end.status is expected, f"{len(cancels)} cancels were accepted, and it ended {end.status}")

    def _nothing_begins_after_a_cancel(self) -> None:
        cancelled = min((seq for seq, _ in self._accepted_verbs(Verb.CANCEL)), default=None)
        for seq, event in self._of(CallStarted):
            is_late = cancelled is not None and seq > cancelled and event.kind is not CallKind.UNDO
            self._rule(not is_late, f"{event.name} got a permit after the cancel")

    def _undone_is_what_should_be(self, end: RunFinished) -> None:
        recorded = Counter(event.effect for _, event in self._of(EffectUndone))
        did, undone = Counter(_what("did", self._log)), Counter(_what("undo", self._log))
        for effect in self._effects:
            what = self._what_of(effect)
            self._rule(recorded[effect.id] <= 1, f"{what} was recorded as undone {recorded[effect.id]} times")
            is_undone = effect.state is EffectState.UNDONE
            self._rule(
                is_undone == (undone[what] > 0), f"{what} is {effect.state}, and was undone {undone[what]} times"
            )
            self._rule(did[what] <= effect.happened, f"{what} was done {did[what]} times")
            if undone[what] and did[what]:
                self._rule(_is_in_order(self._log, what), f"{what} was done again after its undo")
            wanted = self._is_undo_wanted(effect, end)
            if wanted is not None:
                self._rule(is_undone is wanted, f"it ended {end.status}, and {what} is {effect.state}")

    def _is_undo_wanted(self, effect: Effect, end: RunFinished) -> bool | None:
        """Whether this effect should have been undone; None where both are right."""
        if not effect.happened:
            return False
        if end.status is Status.CANCELLED:
            wishes = {event.undo for _, event in self._accepted_verbs(Verb.CANCEL)}
            if wishes == {Undo.NONE}:
                return None if self._was_interrupted_by_a_redirect(effect) else False
            return None if Undo.NONE in wishes else True
        return self._was_interrupted_by_a_redirect(effect)

    def _was_interrupted_by_a_redirect(self, effect: Effect) -> bool:
        redirects = {event.id for _, event in self._accepted_verbs(Verb.REDIRECT)}
        return any(
            event.call == effect.id and event.verb in redirects and event.outcome is not Outcome.COMPLETED
            for _, event in self._of(CallFinished)
        )

    # -- looking things up

    def _of(self, kind: type[E]) -> list[tuple[int, E]]:
        return [(record.seq, record.event) for record in self._records if isinstance(record.event, kind)]

    def _accepted_verbs(self, verb: Verb) -> list[tuple[int, VerbAccepted]]:
        return [(seq, event) for seq, event in self._accepted.values() if event.verb is verb]

    def _acceptance(self, told: Told) -> VerbAccepted | None:
        if told.request in self._accepted:
            return self._accepted[told.request][1]
        if told.move.verb == "abort":  # an abort has an id of its own making, and there is one in a race
            return next((event for _, event in self._accepted_verbs(Verb.ABORT)), None)
        return None

    def _what_of(self, effect: Effect) -> str:
        """What the log calls it: the first thing a tool was asked to do, the second, and so on."""
        if self._raced.racer != "couple":
            return effect.what if effect.what == "it" else "room"
        started = next(event for _, event in self._of(CallStarted) if event.call == effect.id)
        return "flight" if b"flight" in bytes(started.arguments or b"") else "room"

    def _rule(self, holds: bool, otherwise: str) -> None:
        if not holds:
            story = "\n".join(f"  {record.seq:3} {record.body.decode()}" for record in self._records)
            told = "\n".join(f"  {one.move} -> {one.answer!r}" for one in self._raced.told)
            raise Foul(f"{self._raced.run} ({self._raced.racer}): {otherwise}\n{told}\n{story}\n  log: {self._log}")


def _what(word: str, log: Sequence[str]) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in log if line.startswith(f"{word} ")]


def _is_in_order(log: Sequence[str], what: str) -> bool:
    return log.index(f"did {what}") < log.index(f"undo {what}")
