"""Every error of Checkrein.

    CheckreinError                     code, a sentence, and the values as attributes
    ├── Refused                        a verb, or a decision, that the run's status does not allow
    ├── JournalError
    │   ├── Conflict                   a decision made in ignorance of what came in between
    │   ├── Fenced                     a permit for a run that was cancelled or halted
    │   ├── RunOver                    an event that a finished run no longer takes
    │   ├── StaleEpoch                 an append by somebody who no longer owns the run
    │   ├── LeaseHeld                  a claim of a run that has a living owner
    │   ├── NameTaken                  a worker of a name that another living process has
    │   ├── WorkerNotFound
    │   ├── RunNotFound
    │   ├── RunExists
    │   ├── StoreNotOurs               a file or database that is not a journal; it is left as it is
    │   ├── StoreTooNew                a journal of a later version
    │   ├── StoreDamaged               truncated, corrupt, or a chain that does not verify
    │   ├── StoreFull                  no room left on the disk
    │   ├── StoreForbidden             its user has not the right; nothing was taken, `role` is the one that has
    │   ├── EventTooLarge              more bytes than a journal takes in one event; never taken, however often tried
    │   └── StoreUnavailable           it could not be asked; whether it took effect is not known, ask again by id
    ├── ModelError                     a model could not be asked, or did not answer; `remedy` says what would help
    │   ├── UnknownModel               a name that means no model
    │   ├── ModelUnauthorised          the provider does not take the key
    │   ├── ModelNotFound              the provider has no such model, or not for this key
    │   ├── ModelRateLimited           asked too often, or a quota is used up; `retry_after` seconds if it was said
    │   ├── ModelUnavailable           not reached, overloaded, or broken off in the middle
    │   ├── ModelCut                   its answer was cut off by a limit on its length
    │   ├── ModelFiltered              its answer was cut off, or refused, by the provider's own rules
    │   └── ModelRefusedRequest        it will refuse the same request every time
    │       └── ModelContextExceeded   what is asked is longer than it can read
    ├── Interrupted                    in a program: a person stopped this call; it may have partly happened
    ├── CallFailed                     in a program: the call raised, or was declined
    ├── ReplayDiverged                 a program asked for something else than its run has recorded
    ├── RunFailed                      a run that has no result
    │   └── RunCancelled               because somebody stopped it: it was cancelled or halted
    ├── NotImportable                  a tool that a worker process cannot import
    ├── ResultTooLarge                 a tool or a program that returned more than a journal should keep
    ├── EngineUnavailable              what places runs on workers is not there; `remedy` says what would help
    ├── MCPUnavailable                 an MCP server whose tools cannot be used; `remedy` says what would help
    ├── AccessError
    │   ├── Unauthorised               nobody, or a token that is unknown, expired or revoked
    │   ├── Forbidden                  somebody whose role does not allow this
    │   └── RequestRefused             a request that is not even looked at: from another site, too large, not JSON
    ├── ServerUnavailable              a client's server is not reached, breaks off, or answers what is no answer
    ├── WrongInput                     something a person typed: a file, a run or a call that there is not
    └── MisuseError                    a mistake of the calling program

`code` is stable: HTTP and the command line repeat it unchanged. Every attribute is declared with its type, and has its
default where whoever raises the error does not know better.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class CheckreinError(Exception):
    """A sentence for people, a stable `code` and attributes for programs."""

    code: str = "error"
    message: str

    def __init__(self, message: str, **values: Any) -> None:
        """`values` are attributes that the class declares; a `code` of its own says more exactly what is wrong."""
        super().__init__(message)
        self.message = message
        for name, value in values.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name}.")
            setattr(self, name, value)


class Refused(CheckreinError):
    """Nothing was changed. `status` is where `run` stands, where that is the reason."""

    code = "refused"
    run: str = ""
    status: str | None = None


class MisuseError(CheckreinError):
    code = "misuse"
    run: str = ""
    agent: str = ""
    address: str = ""
    """Of a store."""
    place: int | None = None
    """In a script of a model: the turn that it does not have."""


class WrongInput(CheckreinError):
    """Something a person typed cannot be meant: the sentence says why, a `code` of its own which mistake it is."""

    code = "wrong_input"
    run: str = ""
    runs: tuple[str, ...] = ()
    """All that may be meant."""


class Interrupted(CheckreinError):
    """A person redirected the run, or stopped this call. It may have partly happened; `partial` is what had come."""

    code = "interrupted"
    call: str = ""
    partial: bytes | None = None
    instruction: str | None = None
    """What the person who stopped it wants instead, if they have said so. It also goes with the next `ctx.model`."""
    carried: str | None = None
    """What a person had told the agent with this call."""


class CallFailed(CheckreinError):
    """A call raised, or was declined. `error` is what it said."""

    code = "call_failed"
    error: str = ""
    name: str = ""
    call: str = ""
    instruction: str | None = None
    """What a person had told the agent with this call."""


class ReplayDiverged(CheckreinError):
    """The program asked for something else than its run has recorded. `asked` and `recorded` name both."""

    code = "replay_diverged"
    asked: str = ""
    recorded: str = ""


class RunFailed(CheckreinError):
    """The run has no result: it failed or, as a `RunCancelled`, was stopped. `status` and `run` say which."""

    code = "run_failed"
    run: str = ""
    status: str | None = None
    error: str | None = None


class RunCancelled(RunFailed):
    """The run has no result because somebody stopped it: a person cancelled it, or an operator halted it (`killed`)."""

    code = "run_cancelled"


class NotImportable(CheckreinError):
    """A worker process cannot import this function: `reason` says why, the sentence also what to do about it."""

    code = "not_importable"
    function: str = ""
    reason: str = ""


class ResultTooLarge(CheckreinError):
    """A tool or a program returned more than `most` bytes of JSON. What it did is done; its result is not kept."""

    code = "result_too_large"
    most: int = 0


class EngineUnavailable(CheckreinError):
    """What decides which worker drives a run cannot be used: it is not reached, or lacks what is needed of it.

    `remedy` tells a person what would help.
    """

    code = "engine_unavailable"
    remedy: str = "Start it, or name the address at which it is."


class MCPUnavailable(CheckreinError):
    """The tools of an MCP server cannot be used: it is not reached, ends, refuses, or its tools clash with others.

    `server` is its name, `remedy` tells a person what would help.
    """

    code = "mcp_unavailable"
    server: str = ""
    remedy: str = "Look at the server, then resume."


class AccessError(CheckreinError):
    """A request over HTTP that may not be made. `status` is its HTTP status, `headers` go with it."""

    code = "access"
    status: int = 403
    headers: Mapping[str, str] = MappingProxyType({})
    agent: str = ""
    call: str = ""
    known: tuple[str, ...] = ()
    """What there is instead of what was asked for."""
    host: str = ""
    path: str = ""
    """Where a file is that is not to be had here."""


class Unauthorised(AccessError):
    code = "unauthorised"
    status = 401


class Forbidden(AccessError):
    code = "forbidden"


class RequestRefused(AccessError):
    """The request is not taken, whoever makes it: the sentence says why, a `code` of its own which rule it broke."""

    code = "request_refused"


class ServerUnavailable(CheckreinError):
    """A server could not be asked, or what it answered cannot be used. `url` is where, without anything secret.

    `reason` is one word: dns, refused, unreachable, tls, proxy, timeout, stalled, cut, malformed, oversized, busy or
    fault. `is_unsent`: nothing of the request was taken, for certain; otherwise it may have been.
    """

    code = "server_unavailable"
    url: str = ""
    reason: str = ""
    is_unsent: bool = False


class JournalError(CheckreinError):
    """`run` is whose events it is about, `path` where they are kept, as far as that is known.

    Of an append that was not taken whole, `status` and `epoch` are those of the run by then.
    """

    code = "journal"
    run: str = ""
    path: str = ""
    status: str | None = None
    epoch: int = 0
    missed: tuple[Any, ...] = ()
    """Records; as in `committed`. No layer stands below this one, so their type is not named here."""
    committed: tuple[Any, ...] = ()


class Conflict(JournalError):
    """The decisions of an append were refused; its facts, if any, are in the journal (`committed`).

    `missed` holds every event after the `after` of the append, the committed facts included, so that the maker can
    fold them and decide again.
    """

    code = "conflict"


class Fenced(JournalError):
    """The run, or one it descends from, was cancelled or halted: no permit and no sub-run. Facts were committed."""

    code = "fenced"


class RunOver(JournalError):
    """The run is finished; it takes only undos, answers, resolutions and reasons."""

    code = "run_over"


class StaleEpoch(JournalError):
    """Somebody else owns the run by now: nothing of the append was taken."""

    code = "stale_epoch"


class LeaseHeld(JournalError):
    """The run has a living owner."""

    code = "lease_held"
    owner: Any = None
    """An `Owner`."""
    deadline: float = 0.0
    """When its lease ends, in Unix seconds."""


class NameTaken(JournalError):
    """Another process is, or was told to be, the worker of this name: `worker` is that one.

    With the code `worker_buried` it is this very process of which an operator has said that it is dead.
    """

    code = "name_taken"
    worker: Any = None
    """A `Worker`."""


class WorkerNotFound(JournalError):
    code = "worker_not_found"


class RunNotFound(JournalError):
    code = "run_not_found"


class RunExists(JournalError):
    code = "run_exists"


class StoreNotOurs(JournalError):
    code = "store_not_ours"


class StoreTooNew(JournalError):
    code = "store_too_new"
    version: int | None = None
    """Of its schema, where that is too new."""
    type: str = ""
    """Of an event that is not known, where there is one."""


class StoreDamaged(JournalError):
    code = "store_damaged"
    seq: int | None = None
    """The event that is damaged, by its number or its type."""
    type: str = ""


class StoreFull(JournalError):
    code = "store_full"


class StoreForbidden(JournalError):
    """The user of a database has not the right to do this: nothing was taken, and trying again will not help."""

    code = "store_forbidden"
    role: str = ""
    """The role that has it, where there is one."""


class StoreUnavailable(JournalError):
    code = "store_unavailable"
    pid: int | None = None
    """Of the process that keeps it locked."""
    is_closed: bool = False
    """This journal was closed by its own program, and will not answer again."""


class EventTooLarge(JournalError):
    """An event of more bytes than any journal takes: nothing was taken, and trying again will not help."""

    code = "event_too_large"
    type: str = ""
    """Of the event."""


class ModelError(CheckreinError):
    """A model could not be asked, or did not answer.

    `remedy` tells a person what would help. `may_retry` says whether the same request may succeed later by itself, and
    `retry_after` in how many seconds, None where the provider did not say. `status` is that of its answer over HTTP.
    """

    code = "model"
    may_retry: bool = False
    remedy: str = "Look at what the provider said."
    retry_after: float | None = None
    status: int | None = None


class UnknownModel(ModelError):
    code = "unknown_model"
    remedy = "Name the model as provider:model, with a known provider, or pass a model object."
    model: str = ""
    known: tuple[str, ...] = ()


class ModelUnauthorised(ModelError):
    code = "model_unauthorised"
    remedy = (
        "Set a valid API key for this provider where `checkrein serve`, or your program, is started, and start it "
        "again; then resume."
    )


class ModelNotFound(ModelError):
    code = "model_not_found"
    remedy = "Check the model's name, and that the API key may use it, then resume."


class ModelRateLimited(ModelError):
    """Asked too often, or a quota is used up."""

    code = "model_rate_limited"
    may_retry = True
    remedy = "Wait and resume, or raise the limit with the provider."


class ModelUnavailable(ModelError):
    """It could not be reached, is overloaded, or broke off. `partial` holds what had come of its reply, if any.

    `reason` is one word: dns, refused, unreachable, tls, proxy, timeout (nothing came at all), stalled (nothing more
    came), cut, malformed, oversized, overloaded or fault.
    """

    code = "model_unavailable"
    may_retry = True
    remedy = "Resume once the provider can be reached again."
    partial: Any = None
    reason: str = ""


class ModelRefusedRequest(ModelError):
    """The provider will refuse this request however often it is sent: malformed, too long, or against its rules.

    `position` is the index of the message at fault, where that is known.
    """

    code = "model_refused_request"
    remedy = "Change what is asked: read what the provider said, then redirect or start again."
    position: int | None = None


class ModelContextExceeded(ModelRefusedRequest):
    """What is asked is longer than the model can read."""

    code = "model_context_exceeded"
    remedy = (
        "Resume goes on with a shortened history: the oldest results of tools are left out first. "
        "Redirect or cancel if that will not do."
    )


class ModelCut(ModelError):
    """An answer was cut off by a limit on its length, so it is none. `limit` is how many tokens it had, about.

    `by_cap`: it was a cap of the run that cut it, and the next permit says whether there is more.
    """

    code = "model_cut"
    may_retry = True
    remedy = "Resume asks again with more room; or raise max_tokens in the settings, or redirect to ask for less."
    limit: int = 0
    by_cap: bool = False


class ModelFiltered(ModelError):
    """An answer was cut off, or refused, by the provider's own rules."""

    code = "model_filtered"
    remedy = "Look at what came, then redirect to ask for something else; resume asks the same again."


def describe(error: BaseException) -> str:
    """What an exception says, after its class, as it is recorded: `ValueError: no`.

    Never raises. An exception is code of whoever wrote it, and its `str()` may itself fail.
    """
    return f"{type(error).__name__}: {said_by(error)}"


def said_by(error: BaseException) -> str:
    """What an exception says without its class; never raises."""
    try:
        return str(error)
    except BaseException as failure:
        return f"(what it says cannot be read: its str() raised {type(failure).__name__})"
