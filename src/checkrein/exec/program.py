"""A program that knows nothing of Checkrein, as an agent: one call as long as it lives, and a gateway beside it.

It is a black box, and so it is not played again: what it did between its requests is known only by what it says. After
a crash it is in doubt as a whole, and going on is its own affair.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from checkrein.agents.agent import agent_name
from checkrein.agents.context import Context
from checkrein.agents.program import ContextAgent
from checkrein.calls.base import CallRequest, Execution, Perform, Permit, RefusedExecution
from checkrein.calls.executor import mark_of
from checkrein.calls.process import Command, ProcessExecution
from checkrein.core.conditions import Condition
from checkrein.core.enums import CallKind, Outcome, Verb, When
from checkrein.core.events import WatcherFlagged
from checkrein.driver.program_api import ProgramApi
from checkrein.exec.hook_settings import with_hook
from checkrein.exec.profiles import Profile, bring_home, prepare, upstreams_of
from checkrein.exec.seal import Seal
from checkrein.exec.tool_hook import ToolHook
from checkrein.gateway.gateway import Gateway

FIRST: Final = "c1"
"""The program is the first call of its run. Where that was made before, somebody else has died over it."""
NOT_AGAIN: Final = "A program is not started again by itself: nobody knows how far it had come. Start it anew."
BYPASS_SECONDS: Final = 10.0
"""So long a program may be at work without one request before it is said that it may go round the gateway."""
BYPASS: Final = "It has asked no model through the gateway yet: it may go round it. --sealed leaves it no other way."


class CommandProgram(ContextAgent):
    """Runs `command`, which is told by its profile to ask the gateway. Raises `MisuseError` for a wrong upstream.

    `approves` are the tools that a person is asked about, of a program whose profile asks. `before` is awaited with the
    id of the run, before the program begins.
    """

    replays = False

    def __init__(
        self,
        name: str,
        command: Command,
        profile: Profile,
        *,
        upstreams: Mapping[str, str] | None = None,
        sealed: bool = False,
        approves: Sequence[str] = (),
        before: Callable[[str], Awaitable[None]] | None = None,
        stop_when: Condition | None = None,
    ) -> None:
        super().__init__(agent_name(name), stop_when=stop_when)
        self.description = f"`{shlex.join(command.arguments)}`, a program that knows nothing of Checkrein."
        self._command = command
        self._profile = profile
        self._upstreams = upstreams_of(profile, command.environment) | dict(upstreams or {})
        self._sealed = sealed
        self._approves = approves
        self._before = before
        self._execution: ProcessExecution | None = None

    @property
    def exit_code(self) -> int | None:
        """With what the program ended by itself; None where it has not, or was ended."""
        return None if self._execution is None else self._execution.exit_code

    @property
    def going_on(self) -> str:
        """How the program itself goes on where it was ended, in a sentence; empty: it cannot."""
        how = self._profile.resumes
        return f"{self.name} goes on by its own record with: checkrein exec --continue last" if how else ""

    async def play(self, driver: ProgramApi) -> bytes | None:
        if self._before is not None:
            await self._before(driver.run)
        environment = self._command.environment
        hook = ToolHook(driver, self._approves, end_since=self._end_since, finishes=not self._command.freezes)
        async with Gateway(
            Context(self, driver),
            upstreams=self._upstreams,
            environment=environment,
            main_offers_tools=self._profile.offers_tools,
            hook=hook if self._profile.asks else None,
            tell=partial(self._note, driver),
        ) as gateway:
            seal = Seal(gateway.port) if self._sealed else None
            with tempfile.TemporaryDirectory(prefix="checkrein-exec-") as folder:
                try:
                    return await self._play(driver, gateway, seal, Path(folder))
                finally:
                    bring_home(self._profile, environment, Path(folder))
                    if seal is not None:
                        await seal.close()

    async def _play(self, driver: ProgramApi, gateway: Gateway, seal: Seal | None, folder: Path) -> bytes | None:
        environment = {**self._command.environment, **gateway.environment()}
        prepared = prepare(self._profile, self._command.arguments, environment, gateway.urls, folder)
        arguments = prepared.arguments
        if self._profile.asks:
            arguments = with_hook(arguments, self._profile.asks, gateway.hook_url, folder)
        command = msgspec.structs.replace(
            self._command,
            arguments=arguments,
            environment=prepared.environment,
            seal=None if seal is None else (seal.line.fileno(), seal.port),
        )

        def perform(permit: Permit) -> Execution:
            return self._start(command, driver, permit)

        if self._profile.hears_of_kills and not self._profile.asks:  # else each tool is a call, and stopped as one
            driver.start(self._end_commands(driver, gateway))
        if seal is None and not prepared.is_known:
            driver.start(self._tell_of_a_bypass(driver, gateway))
        asked = msgspec.json.encode({"command": list(self._command.arguments)})
        request = CallRequest(kind=CallKind.PROCESS, name=self.name, perform=perform, arguments=asked)
        try:
            return (await driver.call(request)).value
        finally:
            driver.start(driver.withdraw_approvals(f"{self.name} has ended."))

    def _start(self, command: Command, driver: ProgramApi, permit: Permit) -> Execution:
        if (permit.call, permit.attempt) != (FIRST, 1):
            return RefusedExecution(NOT_AGAIN)
        mark = mark_of(permit.key, permit.call, permit.attempt)
        self._execution = ProcessExecution(command, runtime=driver.executor.runtime, mark=mark)
        return self._execution

    async def _end_commands(self, driver: ProgramApi, gateway: Gateway) -> None:
        """A redirect that does not wait ends the commands that the program was asked for, and lets it ask again."""
        heeded: set[str] = set()
        while True:
            redirects = [verb for verb in driver.state.verbs if (verb.verb, verb.when) == (Verb.REDIRECT, When.NOW)]
            new = {verb.id for verb in redirects} - heeded
            heeded |= new
            since = gateway.at_work_since
            if new and since is not None and self._execution is not None:
                await self._execution.end_since(since)
            else:
                await driver.change()

    async def _tell_of_a_bypass(self, driver: ProgramApi, gateway: Gateway) -> None:
        await asyncio.sleep(BYPASS_SECONDS)
        if not gateway.requests:
            self._note(driver, "bypass", BYPASS)

    def _note(self, driver: ProgramApi, kind: str, words: str) -> None:
        driver.note_once(WatcherFlagged(id=kind, at=driver.now(), watcher="gateway", what=words))

    async def _end_since(self, moment: float) -> bool:
        if self._execution is None:
            return False
        ended = await self._execution.end_since(moment)
        if self._execution.is_ending:  # with the program ends whatever it performs itself
            return (await self._execution.ended()).outcome is not Outcome.DETACHED
        return ended

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        def refuse(permit: Permit) -> Execution:
            return RefusedExecution(f"{self.name} is a program of its own: it answers no questions on the side.")

        return refuse
