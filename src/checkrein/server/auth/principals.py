"""Who somebody is, and what they may do.

Two questions, always in this order. May they *see* this run? If not, it does not exist for them (404, exactly as for an
unknown run). May they do *this* to it? If not, they are told so (403).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Role(StrEnum):
    """Each may all that the one before it may."""

    VIEWER = "viewer"
    CONTROLLER = "controller"
    OPERATOR = "operator"


class Action(StrEnum):
    """What a request is about to do."""

    SEE = "see"
    """Read a run, its streams and its receipts."""
    START = "start"
    """Start a run, or one that goes on from another."""
    STEER = "steer"
    """Every verb on a run and on its calls, and giving out a token for it."""
    OPERATE = "operate"
    """Halt, and whatever is about everybody's runs."""
    RESET = "reset"
    """Lift what was halted. No role may: see `halt_token`."""


# fmt: off
ALLOWED: Final = {
    Role.VIEWER:     frozenset({Action.SEE}),
    Role.CONTROLLER: frozenset({Action.SEE, Action.START, Action.STEER}),
    Role.OPERATOR:   frozenset({Action.SEE, Action.START, Action.STEER, Action.OPERATE}),
}
# fmt: on

FOR_ONE_RUN: Final = frozenset({Action.SEE, Action.STEER})
"""What a token for one run is good for at most: it starts nothing and gives out nothing."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever makes a request, as far as Checkrein needs to know."""

    name: str
    """For the record: who asked."""
    role: Role
    owner: str = ""
    """Whose runs they see and start. Without one, somebody who is no operator sees no run."""
    run: str | None = None
    """Only this run and what it started itself."""
    origins: tuple[str, ...] = ()
    """Other web pages that may use this credential, as `https://host[:port]`."""
    expires_at: float | None = None
    rights: tuple[Action, ...] | None = None
    """What they may, instead of what their role may: for the token that resets."""
    key: str = ""
    """Which token or session this came from, for `Guard.still_valid`; empty for one that an application vouches for."""

    def may_see(self, owner: str, run: str, root: str | None) -> bool:
        """Whether there is, for them, a run `run` that belongs to `owner` and descends from `root`."""
        if self.rights is not None and Action.SEE not in self.rights:
            return False
        # A sub-run is named after the run and the call that began it.
        if self.run is not None and self.run not in (run, root) and not run.startswith(f"{self.run}."):
            return False
        if self.role is Role.OPERATOR:
            return True
        # A run without an owner belongs to nobody, and not to everybody without one.
        return (self.run is not None and not self.owner) or (bool(self.owner) and self.owner == owner)

    def may(self, action: Action) -> bool:
        """Whether they may do this, to a run that they may see."""
        rights = ALLOWED[self.role] if self.rights is None else self.rights
        return action in rights and (self.run is None or action in FOR_ONE_RUN)
