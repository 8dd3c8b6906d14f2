"""What the writer is asked to do, and what it does it with.

Where each run stands, as its next append must know it: what was read or written is remembered, and may be out of date
at any time, since the statement of the append compares it with the truth. So it is good enough to take an append, and
never to refuse one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

import msgspec

from checkrein.core.effects import Effect, EffectsById
from checkrein.core.enums import EffectState, Status
from checkrein.journal.admission import FenceLevel, Head
from checkrein.journal.base import Recorded
from checkrein.journal.postgres.connection import Session, Target
from checkrein.journal.queue import Queued

MOST_HEADS: Final = 4096
"""How many heads are remembered."""

HEADS: Final = """
SELECT r.id, r.key, greatest(h.cover, {s}.wide_cover(r.id, r.root, r.agent, r.owner)), h.hash, h.seq, h.decided,
       h.epoch, h.status
FROM {s}.runs r JOIN {s}.heads h ON h.run = r.key WHERE r.id = ANY (%s)
"""
EFFECTS: Final = "SELECT opened, body FROM {s}.effects WHERE run = %s ORDER BY opened"

EFFECT_DECODER: Final = msgspec.json.Decoder(Effect)


class EffectLedger(EffectsById):
    """The effects of a run, and which of them an append has changed."""

    def __init__(self, rows: Collection[tuple[int, bytes]]) -> None:
        super().__init__()
        self.seq = 0
        """Of the event that is being folded."""
        self.opened: dict[str, int] = {}
        self.changed: dict[str, None] = {}
        for opened, body in rows:
            effect = EFFECT_DECODER.decode(body)
            self[effect.id] = effect
            self.opened[effect.id] = opened

    def put(self, effect: Effect, *, opens: bool) -> None:
        super().put(effect, opens=opens)
        self.changed[effect.id] = None
        if opens:
            self.opened[effect.id] = self.seq

    def close_open(self, now: EffectState) -> None:
        self.changed.update((effect.id, None) for effect in self.values() if effect.state is EffectState.OPEN)
        super().close_open(now)


class CachedHead:
    """What is remembered of a run. `ledger` is None until somebody needed it; it is as new as the head."""

    __slots__ = ("cover", "hash", "head", "key", "ledger")

    def __init__(self, key: int, cover: FenceLevel, hash: bytes, head: Head) -> None:
        self.key = key
        self.cover = cover
        self.hash = hash
        self.head = head
        self.ledger: EffectLedger | None = None


class Heads:
    """Used by the writer's thread only."""

    def __init__(self) -> None:
        self._known: dict[str, CachedHead] = {}

    def get(self, run: str) -> CachedHead | None:
        return self._known.get(run)

    def read(self, session: Session, runs: Collection[str]) -> None:
        """Look these up. What is not there is not remembered either."""
        for run, key, cover, hash, seq, decided, epoch, status in session.rows(HEADS, ([*runs],)):
            self._known[run] = CachedHead(key, FenceLevel(cover), hash, Head(seq, decided, epoch, Status(status)))

    def make_room(self) -> None:
        """Called before a batch, which relies on what is remembered from its beginning to its end."""
        if len(self._known) > MOST_HEADS:
            self._known.clear()

    def forget(self, run: str | None = None) -> None:
        """What is remembered is known to be out of date, or was never written."""
        if run is None:
            self._known.clear()
        else:
            self._known.pop(run, None)


def ledger_of(session: Session, known: CachedHead) -> EffectLedger:
    if known.ledger is None:
        rows = [(opened, body) for opened, body in session.rows(EFFECTS, (known.key,))]
        known.ledger = EffectLedger(rows)
    return known.ledger


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LARGEST_NOTE = 7_900
"""In bytes: PostgreSQL takes notifications of up to 8000."""


TEXT_MARK = "~"
"""Before what is told: text was written, and no event."""
KEYS_MARK = "!"
"""Before what is told: some key is no longer good."""


class Context:
    """One connection of the writer. `news` is told to followers when those who appended were told."""

    def __init__(self, session: Session, heads: Heads, target: Target, sender: str) -> None:
        self.session = session
        self.heads = heads
        self.target = target
        self.sender = sender
        self.news: dict[str, list[Recorded]] = {}

    def note(self, runs: list[str]) -> str:
        """What other processes are told: who says so, and which runs have news; no run: too many to name."""
        note = " ".join([self.sender, *runs])
        return note if len(note.encode()) <= LARGEST_NOTE else self.sender


NOTIFY: Final = "SELECT pg_notify(%s::text, %s::text)"


class Job(Queued, ABC, Generic[T_co]):
    """One thing to write. To perform it again does no harm: that is how one whose answer was lost is answered."""

    deadline = 0.0
    """Until when the writer tries, by the monotonic clock."""

    @abstractmethod
    def perform(self, at: Context) -> T_co: ...


class Do(Job[T]):
    """Something short that is written by statements of its own."""

    def __init__(self, act: Callable[[Context], T]) -> None:
        self._act = act

    def perform(self, at: Context) -> T:
        return self._act(at)


class Echo(Job[None]):
    """Says something to all who listen; `sent` is called, in the writer's thread, once that is committed."""

    def __init__(self, note: str, sent: Callable[[], None]) -> None:
        self._note = note
        self._sent = sent

    def perform(self, at: Context) -> None:
        at.session.run(NOTIFY, (at.target.channel, self._note))
        self._sent()
