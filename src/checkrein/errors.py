"""Every error of Checkrein.

    CheckreinError                     code, a sentence, and the values as attributes
    ├── Refused                        a verb, or a decision, that the run's status does not allow
    ├── JournalError
    │   ├── Conflict                   a decision made in ignorance of what came in between
    │   ├── Fenced                     a permit for a run that was cancelled or halted
    │   ├── RunOver                    an event that a finished run no longer takes
    │   ├── StaleEpoch                 an append by somebody who no longer owns the run
    │   ├── LeaseHeld                  a claim of a run that has a living owner
    │   ├── RunNotFound
    │   ├── RunExists
    │   ├── StoreNotOurs               a file or database that is not a journal; it is left as it is
    │   ├── StoreTooNew                a journal of a later version
    │   ├── StoreDamaged               truncated, corrupt, or a chain that does not verify
    │   ├── StoreFull                  no room left on the disk
    │   └── StoreUnavailable           it could not be asked; whether it took effect is not known, ask again by id
    ├── ModelError                     a model could not be asked, or did not answer; `remedy` says what would help
    │   ├── UnknownModel               a name that means no model
    │   ├── ModelUnauthorised          the provider does not take the key
    │   ├── ModelNotFound              the provider has no such model, or not for this key
    │   ├── ModelRateLimited           asked too often, or a quota is used up; `retry_after` seconds if it was said
    │   ├── ModelUnavailable           not reached, overloaded, or broken off in the middle
    │   └── ModelRefusedRequest        it will refuse the same request every time
    ├── Interrupted                    in a program: a person stopped this call; it may have partly happened
    ├── CallFailed                     in a program: the call raised, or was declined
    ├── ReplayDiverged                 a program asked for something else than its run has recorded
    ├── RunFailed                      a run that has no result: it failed, was cancelled or was halted
    ├── NotImportable                  a tool that a worker process cannot import
    ├── MCPUnavailable                 an MCP server whose tools cannot be used; `remedy` says what would help
    ├── AccessError
    │   ├── Unauthorised               nobody, or a token that is unknown, expired or revoked
    │   ├── Forbidden                  somebody whose role does not allow this
    │   └── RequestRefused             a request that is not even looked at: from another site, too large, not JSON
    ├── WrongInput                     something a person typed: a file, a run or a call that there is not
    └── MisuseError                    a mistake of the calling program

`code` is stable: HTTP and the command line repeat it unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CheckreinError(Exception):
    """A sentence for people, a stable `code` and attributes for programs."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **values: Any) -> None:
        super().__init__(message)
        self.message = message
        self.__dict__.update(values)


class Refused(CheckreinError):
    code = "refused"


class MisuseError(CheckreinError):
    code = "misuse"


class WrongInput(CheckreinError):
    """Something a person typed cannot be meant: the sentence says why, a `code` of its own which mistake it is."""

    code = "wrong_input"


class Interrupted(CheckreinError):
    """A person redirected the run, or stopped this call. It may have partly happened; `partial` is what had come."""

    code = "interrupted"
    partial: bytes | None = None
    instruction: str | None = None
    """What a person had told the agent with this call."""


class CallFailed(CheckreinError):
    """A call raised, or was declined. `error` is what it said."""

    code = "call_failed"
    error: str = ""
    call: str = ""
    instruction: str | None = None
    """What a person had told the agent with this call."""


class ReplayDiverged(CheckreinError):
    """The program asked for something else than its run has recorded. `asked` and `recorded` name both."""

    code = "replay_diverged"
    asked: str = ""
    recorded: str = ""


class RunFailed(CheckreinError):
    """The run has no result: it failed, was cancelled or was halted. `status` and `run` say which."""

    code = "run_failed"


class NotImportable(CheckreinError):
    """A worker process cannot import this function: `reason` says why, the sentence also what to do about it."""

    code = "not_importable"
    function: str = ""
    reason: str = ""


class MCPUnavailable(CheckreinError):
    """The tools of an MCP server cannot be used: it is not reached, ends, refuses, or its tools clash with others.

    `server` is its name, `remedy` tells a person what would help.
    """

    code = "mcp_unavailable"
    server: str = ""
    remedy: str = "Look at the server, then resume."


class AccessError(CheckreinError):
    """A request over HTTP that may not be made. `status` is its HTTP status."""

    code = "access"
    status: int = 403


class Unauthorised(AccessError):
    code = "unauthorised"
    status = 401


class Forbidden(AccessError):
    code = "forbidden"


class RequestRefused(AccessError):
    """The request is not taken, whoever makes it: the sentence says why, a `code` of its own which rule it broke."""

    code = "request_refused"


class JournalError(CheckreinError):
    code = "journal"


class Conflict(JournalError):
    """The decisions of an append were refused; its facts, if any, are in the journal (`committed`).

    `missed` holds every event after the `after` of the append, the committed facts included, so that the maker can
    fold them and decide again.
    """

    code = "conflict"
    missed: tuple[Any, ...] = ()
    committed: tuple[Any, ...] = ()


class Fenced(JournalError):
    """The run, or one it descends from, was cancelled or halted: no permit and no sub-run. Facts were committed."""

    code = "fenced"
    missed: tuple[Any, ...] = ()
    committed: tuple[Any, ...] = ()


class RunOver(JournalError):
    """The run is finished; it takes only undos, answers, resolutions and reasons."""

    code = "run_over"
    missed: tuple[Any, ...] = ()
    committed: tuple[Any, ...] = ()


class StaleEpoch(JournalError):
    """Somebody else owns the run by now: nothing of the append was taken."""

    code = "stale_epoch"


class LeaseHeld(JournalError):
    """The run has a living owner."""

    code = "lease_held"


class RunNotFound(JournalError):
    code = "run_not_found"


class RunExists(JournalError):
    code = "run_exists"


class StoreNotOurs(JournalError):
    code = "store_not_ours"


class StoreTooNew(JournalError):
    code = "store_too_new"


class StoreDamaged(JournalError):
    code = "store_damaged"


class StoreFull(JournalError):
    code = "store_full"


class StoreUnavailable(JournalError):
    code = "store_unavailable"


class ModelError(CheckreinError):
    """A model could not be asked, or did not answer.

    `remedy` tells a person what would help. `may_retry` says whether the same request may succeed later by itself.
    """

    code = "model"
    may_retry: bool = False
    remedy: str = "Look at what the provider said."


class UnknownModel(ModelError):
    code = "unknown_model"
    remedy = "Name the model as provider:model, with a known provider, or pass a model object."
    known: tuple[str, ...] = ()


class ModelUnauthorised(ModelError):
    code = "model_unauthorised"
    remedy = "Set a valid API key for this provider, then resume."


class ModelNotFound(ModelError):
    code = "model_not_found"
    remedy = "Check the model's name, and that the API key may use it, then resume."


class ModelRateLimited(ModelError):
    """Asked too often, or a quota is used up. `retry_after` is in seconds, None where the provider did not say."""

    code = "model_rate_limited"
    may_retry = True
    remedy = "Wait and resume, or raise the limit with the provider."
    retry_after: float | None = None


class ModelUnavailable(ModelError):
    """It could not be reached, is overloaded, or broke off. `partial` holds what had come of its reply, if any.

    `reason` is one word: dns, refused, unreachable, tls, proxy, timeout (nothing came at all), stalled (nothing more
    came), cut, malformed, oversized, overloaded or fault. `retry_after` is in seconds, None where it was not said.
    """

    code = "model_unavailable"
    may_retry = True
    remedy = "Resume once the provider can be reached again."
    partial: Any = None
    reason: str = ""
    retry_after: float | None = None


class ModelRefusedRequest(ModelError):
    """The provider will refuse this request however often it is sent: malformed, too long, or against its rules.

    `position` is the index of the message at fault, where that is known.
    """

    code = "model_refused_request"
    remedy = "Change what is asked: read what the provider said, then redirect or start again."
    position: int | None = None
