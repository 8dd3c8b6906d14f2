"""What a program asks for when it asks for a call, and what a call is while it is being made.

Which verb stops which kind of call is one table: `STOPS` in `checkrein.core.transitions`. This one says how each kind
is really stopped (`abort`), frozen (`hold`), and what its outcome may then be.

  call                  module          abort                                   hold                outcome
  --------------------  --------------  --------------------------------------  ------------------  ------------------
  model, side question  model           response closed in a cancel scope,      –                   aborted; detached:
                                        nothing more forwarded; let go if it                        provider may go on
                                        cannot be closed in time
  ctx.answer            answer          as a model: its source is closed        –                   as a model
  ctx.stream            stream          iterator closed, as with a model        –                   aborted, detached
  async def tool        in_process,     cancel scope, with the tasks that it    at its next await   aborted; detached
                        child_tasks     created                                 call.checkpoint()   after the grace
  def tool              worker_process  SIGTERM to its process and family,      SIGSTOP             killed
                                        the grace, SIGKILL
  def tool in a thread  in_process      call.checkpoint(), and an exception     at its next         aborted; detached,
                                        injected into the thread                call.checkpoint()   effect in doubt
  child processes       processes       found by group, tree and marks, and     SIGSTOP             killed; detached
                                        ended with their call                                       if one cannot be
  MCP tool              mcp             notifications/cancelled, which nobody   –                   aborted, effect in
                                        acknowledges                                                doubt
  sub-run               sub_run         a cancel of its own, leaves first       a pause of its own  its own receipt
  undo                  as its tool     not by a verb, except a halt            –                   in doubt, repeated

A tool inside `call.shield(seconds=…)` is stopped when it leaves the section, or when the seconds are over; by a halt
and a second cancel at once. It is the driver that counts them, whatever the tool says.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from checkrein.calls.arguments import recordable
from checkrein.core.commands import FinishCall
from checkrein.core.conditions import Usage
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, OnPause, Outcome
from checkrein.errors import MisuseError
from checkrein.processes.table import ProcessInfo


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended. `result` is JSON."""

    outcome: Outcome
    result: bytes | None = None
    error: str | None = None
    settled: bool = False
    """The tool said that its effect is meant to stay."""
    refused: bool = False
    """With `failed`, of a tool: there was nothing to begin, since no tool fits what was asked for."""
    unasked: bool = False
    """With `failed`, of a model: it was not asked, since there is no key for it, or no such model."""
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
    file_hashes: tuple[str, ...] = ()
    """As of `call.finished`."""
    traceback: str | None = None
    """Where the code of a tool failed."""
    left: tuple[str, ...] = ()
    """What could not be stopped, in words. Its results are dropped."""
    shown_at: float | None = None
    """As of `call.finished`."""
    shown: tuple[tuple[int, int], ...] = ()


def finishing(call: str, attempt: int, ended: CallResult, at: float) -> FinishCall:
    """What is recorded of the end of a call."""
    return FinishCall(
        id=f"{call}#{attempt}.finished",
        at=at,
        call=call,
        outcome=ended.outcome,
        result=None if ended.result is None else msgspec.Raw(ended.result),
        error=None if ended.error is None else recordable(ended.error),
        refused=ended.refused,
        unasked=ended.unasked,
        usage=ended.usage,
        chunks=ended.chunks,
        chars=ended.chars,
        chunk_hash=ended.chunk_hash,
        tokens_after_stop=ended.tokens_after_stop,
        retry=ended.retry_seconds is not None,
        files=tuple(map(recordable, ended.files)),
        file_hashes=ended.file_hashes,
        traceback=None if ended.traceback is None else _end_of(recordable(ended.traceback)),
        left=tuple(map(recordable, ended.left)),
        shown_at=ended.shown_at,
        shown=ended.shown,
    )


TRACEBACK_CHARS: Final = 8_000
"""How much of a traceback is recorded: the end, which says what failed and where."""


def _end_of(traceback: str) -> str:
    if len(traceback) <= TRACEBACK_CHARS:
        return traceback
    return "…\n" + traceback[-TRACEBACK_CHARS:].partition("\n")[2]


class StopWait(NamedTuple):
    """What an abort waits for, such as a shielded section, and at most how long."""

    what: str
    seconds: float


class Execution(ABC):
    """A call that is being made. It can be stopped, whatever it is made of."""

    waits_for: StopWait | None = None
    """What an abort that has begun waits for; None when it waits for nothing, or nobody has asked for one."""
    on_wait: Callable[[StopWait], None] | None = None
    """Told when an abort begins to wait."""

    @abstractmethod
    async def ended(self) -> CallResult:
        """Return when it is over. Cancelling this stops nothing."""

    @abstractmethod
    async def abort(self) -> object:
        """Stop it. On return `ended` has its answer; calling this twice, or too late, does no harm."""

    async def hurry(self) -> None:
        """Let an abort, also one that comes later, wait for nothing that the call asks for, such as a shield."""
        return None

    async def let_go(self) -> None:
        """Its driver gives up its run: stop it, unless somebody else drives it, whom that does not concern.

        Somebody else may have the run already, or an operator has halted it, so nothing is waited for.
        """
        await self.hurry()
        await self.abort()

    async def hold(self) -> bool:
        """Freeze it where it is; False when it cannot be."""
        return False

    async def resume(self) -> None:
        """Let it go on after `hold`."""
        return None


def in_words(survivors: Iterable[ProcessInfo]) -> tuple[str, ...]:
    """Processes that could not be ended, as a receipt lists them."""
    return tuple(f"process {one.pid}" for one in survivors)


class RefusedExecution(Execution):
    """Over before it began: nothing fits what was asked for."""

    def __init__(self, why: str) -> None:
        self._result = CallResult(outcome=Outcome.FAILED, error=why, refused=True, begun=False)

    async def ended(self) -> CallResult:
        return self._result

    async def abort(self) -> None:
        return None


class KnownExecution(Execution):
    """Over when it begins, with a result that is known: it only has to be recorded."""

    def __init__(self, result: bytes) -> None:
        self._result = CallResult(outcome=Outcome.COMPLETED, result=result)

    async def ended(self) -> CallResult:
        return self._result

    async def abort(self) -> None:
        return None


class Permit(msgspec.Struct, frozen=True, kw_only=True):
    """The right to make one call, as its performer sees it."""

    run: str
    call: str
    key: str
    attempt: int
    arguments: bytes
    instruction: str | None = None
    partial: bytes | None = None
    """What the attempt before this one had said when it was stopped or broke off."""
    delivers: bool = False
    """`instruction` came after that, and goes to the agent with this attempt."""
    holds: Callable[[], bool] = lambda: True
    """Whether it still holds. A process that was frozen with a permit in its hand must ask before it uses it."""


Perform = Callable[[Permit], Execution]
Undo = Callable[[Effect, "UndoneCall"], Execution]


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
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
    what: str = ""
    """What it changes, in the words of its author: how it is put to a person."""
    schema: bytes | None = None
    """The JSON schema of its arguments, where a person is asked and may want others."""
    revise: Callable[[bytes], CallRequest] | None = None
    """The same call with other arguments, exactly these. Raises `ValueError` when they do not fit."""
    timeout_seconds: float | None = None
    priced: bool = True
    """False: nobody knows what it will cost, so a cap on cost would never trip."""

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


EffectKind = Literal["unknown", "none", "reversible", "irreversible"]
Isolation = Literal["process", "thread"]
ApprovalRule = Literal["block", "queue"]


EFFECTS: Final[tuple[EffectKind, ...]] = get_args(EffectKind)
ISOLATIONS: Final[tuple[Isolation, ...]] = get_args(Isolation)
APPROVALS: Final[tuple[ApprovalRule, ...]] = get_args(ApprovalRule)


def effect_of(about: str, given: object, *, hint: str = "") -> EffectKind:
    """`given` as a kind of effect, or `MisuseError`, with a `hint` for whoever has said something else in words."""
    return _chosen(about, "effect", given, EFFECTS, hint)  # type: ignore[no-any-return]


def isolation_of(about: str, given: object) -> Isolation:
    return _chosen(about, "isolation", given, ISOLATIONS)  # type: ignore[no-any-return]


def on_pause_of(about: str, given: object, allowed: Iterable[OnPause] = OnPause) -> OnPause:
    return OnPause(_chosen(about, "on_pause", given, [one.value for one in allowed]))


def approval_of(about: str, given: object) -> ApprovalRule | Literal[False] | None:
    """None where nothing is said, False where nobody is to be asked. True is the plain way to ask: `block`."""
    if given is None or given is False:
        return given
    if given is True:
        return "block"
    if not isinstance(given, str) or given not in APPROVALS:
        raise MisuseError(f"{about} says approval={given!r}; it may be 'block', 'queue', True (block) or False.")
    return given


def timeout_of(about: str, given: object) -> float | None:
    """A number of seconds above 0, None where nothing is said."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise MisuseError(f"{about} says timeout={given!r}; it is a number of seconds above 0, or None for no limit.")
    return given


def flag_of(about: str, name: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise MisuseError(f"{about} says {name}={given!r}; it may be True or False.")
    return given


def _chosen(about: str, name: str, given: object, allowed: Iterable[Any], hint: str = "") -> Any:
    words = list(allowed)
    if isinstance(given, str) and given in words:
        return given
    raise MisuseError(f"{about} says {name}={given!r}; it may be {_or(words)}.{hint}")


def _or(words: list[str]) -> str:
    *first, last = [repr(word) for word in words]
    return f"{', '.join(first)} or {last}" if first else last
