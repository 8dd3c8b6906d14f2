"""What must hold of the world after any kill, told from the tools' diary and the journal.

Every check is a sentence that could be false; the list that comes back holds those that are. `check_always` holds at
every moment at which no runtime lives; `check_at_the_end` once all runs are finished.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, EffectState, Outcome, Status, Undo, Verb
from checkrein.core.events import (
    CallAnswered,
    CallFinished,
    CallResolved,
    CallStarted,
    EffectInDoubt,
    EffectReopened,
    EffectUndone,
    Event,
    RunCreated,
    RunFinished,
    RunStarted,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.evolve import evolve
from checkrein.journal.base import Recorded
from tests.torture.crash.runtime.diary import Line
from tests.torture.crash.runtime.tools import TOOLS

Wrong = Iterator[str]
Attempt = tuple[str, int]
"""A call and which attempt of it."""

ACTING = frozenset({"begin", "tick", "done"})


class Story:
    """One run: its journal, what its tools wrote, and which attempts had no outcome when a runtime was killed."""

    def __init__(
        self,
        run: str,
        records: Sequence[Recorded],
        lines: Iterable[Line],
        unknown: Iterable[Attempt] = (),
        effects: Sequence[Effect] = (),
    ) -> None:
        self.run = run
        self.records = records
        self.lines = [line for line in lines if line.run == run]
        self.unknown = sorted(set(unknown))
        self.effects = effects
        self.permits = {
            (r.event.call, r.event.attempt): (r.seq, r.event)
            for r in records
            if isinstance(r.event, CallStarted) and r.event.kind is CallKind.TOOL
        }
        self.outcomes: dict[Attempt, list[CallFinished]] = defaultdict(list)
        self._pair_outcomes()

    def _pair_outcomes(self) -> None:
        latest: dict[str, int] = {}
        for record in self.records:
            if isinstance(record.event, CallStarted):
                latest[record.event.call] = record.event.attempt
            elif isinstance(record.event, CallFinished):
                self.outcomes[record.event.call, latest.get(record.event.call, 0)].append(record.event)

    def without_outcome(self) -> list[Attempt]:
        """The tool calls that somebody was permitted to make, and of which nothing is recorded."""
        return [attempt for attempt in self.permits if not self.outcomes.get(attempt)]

    def begins(self) -> list[Line]:
        return [line for line in self.lines if line.what == "begin"]

    def did(self, what: str, attempt: Attempt) -> list[Line]:
        return [line for line in self.lines if line.what == what and (line.call, line.attempt) == attempt]


def told(story: Story) -> str:
    """The run in the order of time: its journal, and what its tools wrote beside it."""
    lines = [(r.event.at, f"{r.seq:4} {_brief(r.event)}") for r in story.records]
    lines += [(line.at, f"     {line.what} {line.call}#{line.attempt} (process {line.pid})") for line in story.lines]
    return "\n".join([f"-- {story.run}", *(f"{at:.3f} {what}" for at, what in sorted(lines))])


def _brief(event: Event) -> str:
    names = ("call", "effect", "kind", "name", "epoch", "attempt", "pid", "outcome", "owner_dead", "began", "verb")
    said = {name: value for name in names if (value := getattr(event, name, None)) not in (None, "", False)}
    return f"{type(event).__name__} " + " ".join(f"{name}={value}" for name, value in said.items())


def check_always(story: Story) -> list[str]:
    return [f"{story.run}: {wrong}" for check in ALWAYS for wrong in check(story)]


def check_at_the_end(story: Story) -> list[str]:
    return [f"{story.run}: {wrong}" for check in (*ALWAYS, *AT_THE_END) for wrong in check(story)]


# -- nothing without a permit, nothing twice


def no_begin_without_an_earlier_permit(story: Story) -> Wrong:
    for line in story.begins():
        permit = story.permits.get((line.call, line.attempt))
        if not line.permit:
            yield f"{line.key} began attempt {line.attempt} when the journal had no permit for it"
        elif permit is None or permit[0] != line.permit:
            yield f"the permit of {line.key}, attempt {line.attempt}, is gone"
    for line in story.lines:
        if line.what == "undo" and not line.permit:
            yield f"the undo of {line.key} began without a permit"


def nothing_is_done_twice(story: Story) -> Wrong:
    """A tool that is not idempotent begins once, and once more each time a person said that it did not happen."""
    denied = Counter(
        r.event.call
        for r in story.records
        if isinstance(r.event, CallResolved) and r.event.answer is Answer.DID_NOT_HAPPEN
    )
    times = Counter((line.item, line.call) for line in story.begins() if not TOOLS[line.tool].idempotent)
    for (item, call), count in times.items():
        if count > 1 + denied[call]:
            yield f"{call} ({item}) began {count} times, and a person said {denied[call]} times that it had not"
    for (call, attempt), count in Counter((line.call, line.attempt) for line in story.begins()).items():
        if count > 1:
            yield f"attempt {attempt} of {call} began {count} times"


def every_attempt_has_the_same_key(story: Story) -> Wrong:
    """What the model asked for once is one call, however often it is tried."""
    keys: dict[str, set[str]] = defaultdict(set)
    items: dict[str, set[str]] = defaultdict(set)
    for line in story.begins():
        keys[line.item].add(line.key)
        items[line.key].add(line.item)
    for names, found in (("keys", keys), ("items", items)):
        for one, several in found.items():
            if len(several) > 1:
                yield f"{one} has several {names}: {sorted(several)}"


def a_permit_is_given_once(story: Story) -> Wrong:
    permits = [r.event for r in story.records if isinstance(r.event, CallStarted) and r.event.kind is CallKind.TOOL]
    for (call, attempt), count in Counter((event.call, event.attempt) for event in permits).items():
        if count > 1:
            yield f"attempt {attempt} of {call} was permitted {count} times"


def only_the_owner_permits(story: Story) -> Wrong:
    """Every permit carries the epoch of the driver that had taken the run up last."""
    epoch = 0
    for record in story.records:
        if isinstance(record.event, RunStarted):
            if record.event.epoch <= epoch:
                yield f"epoch {record.event.epoch} came after {epoch}"
            epoch = record.event.epoch
        elif isinstance(record.event, CallStarted) and record.event.epoch < epoch:
            yield f"{record.event.call} was permitted by epoch {record.event.epoch} in the time of {epoch}"


def a_former_owner_only_answers(story: Story) -> Wrong:
    """Once somebody else has taken the run up, nothing of the driver before is taken but `call.answered`."""
    epochs: list[int] = []
    permitted: dict[str, int] = {}
    for record in story.records:
        event = record.event
        if isinstance(event, RunStarted):
            epochs.append(event.epoch)
        elif isinstance(event, CallStarted):
            permitted[event.call] = event.epoch
        elif isinstance(event, CallAnswered):
            continue
        elif isinstance(event, CallFinished) and len(epochs) > 1 and permitted[event.call] < epochs[-1]:
            if not event.abandoned:
                yield f"{event.call}, of epoch {permitted[event.call]}, was recorded in the time of {epochs[-1]}"
        elif any(re.search(rf"\.{former}\.\d+(\.|$)", event.id) for former in epochs[:-1]):
            yield f"{event.id} was appended in the time of {epochs[-1]}"


def no_permit_after_a_cancel(story: Story) -> Wrong:
    cancelled = 0
    for record in story.records:
        if isinstance(record.event, VerbAccepted) and record.event.verb is Verb.CANCEL:
            cancelled = cancelled or record.seq
        elif isinstance(record.event, CallStarted) and cancelled and record.event.kind is not CallKind.UNDO:
            yield f"{record.event.call} was permitted at {record.seq}, after the cancel at {cancelled}"


# -- what is not known is said


def what_is_recorded_is_true(story: Story) -> Wrong:
    for attempt, finished in story.outcomes.items():
        if attempt not in story.permits:
            continue
        if len(finished) > 1:
            yield f"{attempt} has {len(finished)} outcomes"
        if finished[0].outcome is Outcome.COMPLETED:
            done = story.did("done", attempt)
            told = msgspec.json.decode(bytes(finished[0].result or b"null"))
            if len(done) != 1 or told != f"{done[0].item} is done":
                yield f"{attempt} is recorded as completed with {told!r}; the tool wrote {done}"


def what_nobody_knows_is_in_doubt(story: Story) -> Wrong:
    """Whatever had no outcome when its runtime was killed is later shown as in doubt, and so is its effect."""
    doubted = {r.event.effect for r in story.records if isinstance(r.event, EffectInDoubt)}
    for attempt in story.unknown:
        finished = story.outcomes.get(attempt, [])
        if finished and finished[0].outcome is not Outcome.IN_DOUBT:
            yield f"nobody could know how {attempt} ended, but it is recorded as {finished[0].outcome.value}"
        effect = story.permits[attempt][1].effect
        if finished and effect is not None and effect not in doubted:
            yield f"the effect of {attempt} is not shown as in doubt"


def what_a_former_owner_answers_is_true(story: Story) -> Wrong:
    for record in story.records:
        event = record.event
        if not isinstance(event, CallAnswered):
            continue
        attempts = [a for a, (_, permit) in story.permits.items() if a[0] == event.call and permit.epoch == event.epoch]
        began = [line for attempt in attempts for line in story.did("begin", attempt)]
        done = [line for attempt in attempts for line in story.did("done", attempt)]
        if began and not event.began:
            yield f"{event.call} is said never to have begun; it wrote {began}"
        if event.outcome is Outcome.COMPLETED:
            told = msgspec.json.decode(bytes(event.result or b"null"))
            if not done or told != f"{done[0].item} is done":
                yield f"{event.call} is said to have completed with {told!r}; it wrote {done}"


# -- undoing


def nothing_is_undone_while_somebody_may_still_do_it(story: Story) -> Wrong:
    state = None
    for record in story.records:
        event = record.event
        is_blocked = isinstance(event, CallStarted) and state is not None and state.is_blocked(event.effect or "")
        if is_blocked and isinstance(event, CallStarted) and event.kind is CallKind.UNDO:
            yield f"the undo of {event.effect} was permitted at {record.seq}, before its former owner had answered"
        if state is not None or isinstance(event, RunCreated):  # a story of its own may begin in the middle
            state = evolve(state, event, record.seq)


def nothing_acts_after_its_undo_began(story: Story) -> Wrong:
    undone: set[str] = set()
    for line in story.lines:
        if line.what == "undo":
            undone.add(line.key)
        elif line.what in ACTING and line.key in undone:
            yield f"{line.key} wrote {line.what!r} (process {line.pid}) after its undo had begun"


def what_is_recorded_as_undone_was_undone(story: Story) -> Wrong:
    undone = Counter(line.call for line in story.lines if line.what == "undone")
    recorded = Counter(r.event.effect for r in story.records if isinstance(r.event, EffectUndone))
    for effect, count in recorded.items():
        if count > 1:
            yield f"{effect} is recorded as undone {count} times"
        if not undone[effect]:
            yield f"{effect} is recorded as undone, and its undo never ended"


# -- at the end


def the_run_has_ended(story: Story) -> Wrong:
    """Nothing in it fails by itself, so it is completed, or a person cancelled it."""
    ends = [r.event for r in story.records if isinstance(r.event, RunFinished)]
    if [end.status for end in ends] not in ([Status.COMPLETED], [Status.CANCELLED]):
        yield f"the run ended like this: {[(end.status.value, end.error) for end in ends]}"


def every_call_has_an_outcome(story: Story) -> Wrong:
    for attempt in story.without_outcome():
        yield f"{attempt} was permitted and has no outcome"
    for attempt in story.unknown:
        if not story.outcomes.get(attempt):
            yield f"{attempt} was never shown as in doubt"


def every_verb_is_settled_once(story: Story) -> Wrong:
    settled = Counter(r.event.accepted for r in story.records if isinstance(r.event, VerbSettled))
    for record in story.records:
        if isinstance(record.event, VerbAccepted) and (count := settled[record.event.id]) != 1:
            yield f"{record.event.verb.value} {record.event.id} was settled {count} times"


def a_cancel_has_undone_what_it_should(story: Story) -> Wrong:
    """Where nobody's owner is in question and no undo fails, nothing that can be undone is left."""
    cancels = [r.event for r in story.records if isinstance(r.event, VerbAccepted) and r.event.verb is Verb.CANCEL]
    if not cancels or cancels[-1].undo is Undo.NONE or _status(story) is not Status.CANCELLED:
        return
    for effect in story.effects:
        is_settled = effect.state is EffectState.SETTLED and (cancels[-1].undo is Undo.OPEN or not effect.happened)
        if effect.undo is not None and effect.state is not EffectState.UNDONE and not is_settled:
            yield f"{effect.id} can be undone and is {effect.state.value} after the cancel"


def what_a_person_wanted_undone_is_undone(story: Story) -> Wrong:
    wanted = {r.event.effect for r in story.records if isinstance(r.event, EffectReopened) and r.event.undo}
    for effect in story.effects:
        if effect.id in wanted and effect.state is not EffectState.UNDONE:
            yield f"a person wanted {effect.id} undone, and it is {effect.state.value}"


def _status(story: Story) -> Status | None:
    return next((r.event.status for r in story.records if isinstance(r.event, RunFinished)), None)


ALWAYS = (
    no_begin_without_an_earlier_permit,
    nothing_is_done_twice,
    every_attempt_has_the_same_key,
    a_permit_is_given_once,
    only_the_owner_permits,
    a_former_owner_only_answers,
    no_permit_after_a_cancel,
    what_is_recorded_is_true,
    what_nobody_knows_is_in_doubt,
    what_a_former_owner_answers_is_true,
    nothing_is_undone_while_somebody_may_still_do_it,
    nothing_acts_after_its_undo_began,
    what_is_recorded_as_undone_was_undone,
)
AT_THE_END = (
    the_run_has_ended,
    every_call_has_an_outcome,
    every_verb_is_settled_once,
    a_cancel_has_undone_what_it_should,
    what_a_person_wanted_undone_is_undone,
)
