"""Where a fork comes from: which run, after which step, and what of that run's effects stood when it was forked."""

from __future__ import annotations

import msgspec

from checkrein.core.enums import EffectState


class OriginEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call of the origin did to the world, and what had become of that when the fork was made."""

    call: str
    what: str
    now: EffectState


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a fork begins: in another run, after a step that is finished there."""

    run: str
    step: int
    """The last step that it takes over."""
    title: str
    seq: int
    """What was asked for up to this event of the origin is taken over, and nothing that was asked for later."""
    hash: str
    """Of that event: which history it was."""
    calls: int = 0
    """How many calls are taken over. Whoever drives the fork first records each as `call.reused`."""
    first: str
    """The run where it all began, where forks are forked: the origin itself, if that is no fork."""
    thread: str
    """Of that run. What was said there before it is known to the fork too."""
    began_at: float
    """When that run was created: what time it is for a program before its first call."""
    by: str = ""
    effects: tuple[OriginEffect, ...] = ()
    """What the calls that are taken over did. It belongs to the origin: the fork undoes none of it."""
    more_effects: int = 0
    """How many there are besides."""
    told: str = ""
    """What the agent is told, because of what it did something does not stand."""
    instruction: str | None = None
    """What a person wants from here on."""

    @property
    def words(self) -> str | None:
        """Everything that the agent is told with the first call of the fork that can carry it; None: nothing."""
        return "\n\n".join(filter(None, (self.told, self.instruction))) or None
