"""What every engine promises, however it finds the runs that are to be driven in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, Self

from checkrein.driver.driver import Driver
from checkrein.driver.program_api import Program
from checkrein.engines.dispatcher import Dispatcher
from checkrein.errors import StoreTooNew


class Engine(Protocol):
    """An async context manager. Inside it runs are driven here; when it is left they are paused durably, and whoever is
    next goes on with them. What is true of a run is the journal's: two engines that both believe a run theirs are one
    lease apart."""

    name: ClassVar[str]
    """As the command line and the roster of workers call it."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that are driven here."""

    @property
    def slots(self) -> int | None:
        """How many runs are driven here at once; None: any number."""

    @property
    def free(self) -> int | None:
        """How many more may be; None: any number. What is paused, or waits for a person, takes no slot."""

    def driver(self, run: str) -> Driver | None:
        """The driver of a run, if it lives here."""

    async def take_up(self, run: str) -> None:
        """Have a run driven that was just created: here, or wherever the engine places it."""

    async def ensure_driven(self, program: Program | None, run: str) -> None:
        """Have a sub-run driven that a run which is driven here has begun: here, if this process has its program."""

    async def until_too_old(self) -> StoreTooNew:
        """Return, with what says so, once this version is too old for the store and has handed its runs over."""


MakeEngine = Callable[[Dispatcher], Engine]
"""An engine over what drives runs in this process."""
