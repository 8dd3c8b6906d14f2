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


class JournalError(CheckreinError):
    code = "journal"


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
