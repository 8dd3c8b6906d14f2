"""What a program asks for when it asks for a call, and what the program is to its driver."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from checkrein.core.conditions import Usage
from checkrein.core.effects import Effect
from checkrein.core.words import CallKind, OnPause, Outcome

if TYPE_CHECKING:
    from checkrein.runtime.driver import Driver


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a performance ended. `result` is JSON."""

    outcome: Outcome
    result: bytes | None = None
    error: str | None = None
    settled: bool = False
    """The tool said that its effect is meant to stay."""
    begun: bool = True
    """False when the call was stopped before it began: it has certainly done nothing."""
    usage: Usage | None = None
    chunks: int = 0
    chars: int = 0
    chunk_hash: str = ""
    tokens_after_stop: int = 0
    retry_seconds: float | None = None
    """A failure that may pass: the same is asked again after so many seconds."""
    files: tuple[str, ...] = ()
    """The files that it has published."""


class Performance(Protocol):
    """A call that is being made. It can be stopped, whatever it is made of."""

    async def ended(self) -> Ended:
        """Return when it is over. Cancelling this stops nothing."""

    async def abort(self) -> object:
        """Stop it. On return `ended` has its answer; calling this twice, or too late, does no harm."""

    async def hold(self) -> bool:
        """Freeze it where it is; False when it cannot be."""

    async def go_on(self) -> None:
        """Let it go on after `hold`."""


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """The right to make one call, as its performer sees it."""

    run: str
    call: str
    key: str
    attempt: int
    arguments: bytes
    instruction: str | None = None
    partial: bytes | None = None
    """What the attempt before this one had said when a pause stopped it."""
    holds: Callable[[], bool] = lambda: True
    """Whether it still holds. A process that was frozen with a permit in its hand must ask before it uses it."""


Perform = Callable[[Permit], Performance]
Undo = Callable[[Effect, "UndoneCall"], Performance]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """One call, before it has a permit."""

    kind: CallKind
    name: str
    perform: Perform
    arguments: Callable[[str | None], bytes] | bytes = b"null"
    """JSON; a call that can carry an instruction to the agent may depend on it."""
    place: str = ""
    step: int | None = None
    """The step of the task list it belongs to."""
    carries: bool = False
    on_pause: OnPause = OnPause.FINISH
    idempotent: bool = False
    effect: str | None = None
    """What it does to the world, in words; None when nothing."""
    undo: str | None = None
    approval: str | None = None
    """None, `block` or `queue`."""
    timeout_seconds: float | None = None

    def arguments_with(self, instruction: str | None) -> bytes:
        return self.arguments if isinstance(self.arguments, bytes) else self.arguments(instruction)


def fingerprint(kind: CallKind, name: str, arguments: bytes) -> str:
    """The same for calls that ask for the same."""
    return hashlib.blake2b(b"\0".join((kind.encode(), name.encode(), arguments)), digest_size=12).hexdigest()


class UndoneCall(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo function is given about the call whose effect it undoes."""

    id: str
    key: str
    name: str
    arguments: bytes
    result: bytes | None = None
    outcome: Outcome = Outcome.IN_DOUBT


class Program(Protocol):
    """An agent, as far as a driver cares."""

    name: str

    async def play(self, driver: Driver) -> bytes | None:
        """Run to the end and return the result as JSON. Every call goes through `driver.call`."""

    def undo(self, effect: Effect, call: UndoneCall, driver: Driver) -> Performance:
        """Begin to undo an effect."""

    def answer(self, question: str, driver: Driver) -> Perform:
        """How a side question is answered."""

    def check(self, call: UndoneCall, driver: Driver) -> Performance | None:
        """Begin to find out whether a call in doubt happened; None where its tool cannot tell."""
