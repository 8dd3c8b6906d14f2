"""What a verb answers: what was stopped, what was undone, what is unknown or left, and how long it took."""

from __future__ import annotations

import msgspec

from checkrein.core.enums import CallKind, EffectState, Status, Verb


class Timing(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Milliseconds since the verb was asked for. None: has not happened, is not known, or nothing was to be stopped."""

    accepted: float | None = None
    calls_stopped: float | None = None
    settled: float | None = None


class StoppedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call that was in flight when the verb was accepted, and what became of it."""

    id: str
    kind: CallKind
    name: str
    now: str
    """An `Outcome`, or `held`."""
    ms: float = 0.0
    left: tuple[str, ...] = ()
    """What of it could not be stopped, in words."""
    waited_for: str = ""
    """What its stop had to wait for, in words."""
    before_first_token: bool = False
    """Of a model: it was closed at our end before anything came, so a provider may still be at work on the prompt."""


class ChangedEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An effect the verb touched, or that is still unknown or left when it settles."""

    id: str
    what: str
    now: EffectState
    why: str = ""


class Partial(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Work that was interrupted and is kept: how much text, and in which thread."""

    chars: int = 0
    thread: str = ""


class VerbAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a verb that was accepted: all of it in a `Receipt`, once it has settled, else what is so far."""

    verb: Verb
    run: str
    status: Status
    seq: int
    """The seq of the `verb.accepted` that this answers."""
    by: str
    reason: str = ""
    timing_ms: Timing = Timing()
    calls: tuple[StoppedCall, ...] = ()
    effects: tuple[ChangedEffect, ...] = ()
    tokens_after_stop: int = 0
    partial: Partial = Partial()
    superseded_by: str | None = None
    delivered: bool | None = None
    """For a verb with an instruction: whether the agent got it."""
    answer: str | None = None


class Receipt(VerbAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """What a verb has come to, now that it has settled."""

    @property
    def is_settled(self) -> bool:
        """Whether this is what the verb has come to, and not only what is known so far."""
        return True

    @property
    def waiting_for(self) -> str:
        """What a verb waits for that has not settled; a receipt waits for nothing."""
        return ""
