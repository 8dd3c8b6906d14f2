"""Tools of a program that asks before each of them, as calls of its run: permitted first, and by a person if wanted.

The program starts `hook_main` with what it is about to do (the protocol of Claude Code's `PreToolUse`), which asks here
through the gateway. Answered is what the journal says: a permit, or the words of whoever declined it. The tool is the
program's to perform; here it is over when its result comes by in a request to a model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from checkrein.asyncutil import Once
from checkrein.calls.arguments import recordable
from checkrein.calls.base import CallRequest, CallResult, Execution, Permit, RefusedExecution, fingerprint
from checkrein.core.enums import CallKind, OnPause, Outcome
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import CallFailed, Interrupted, describe
from checkrein.processes import table

_log = logging.getLogger(__name__)

LEFT: Final = "The program waits for an answer no more."
STOPPED: Final = "The run was stopped before this began."
INSIDE: Final = "The program performs it in its own process, which lives on."
UNREADABLE: Final = "Checkrein did not understand what was asked, and has not permitted it."
LONGEST_SHOWN: Final = 200
LONGEST_RESULT: Final = 4_000

EndSince = Callable[[float], Awaitable[bool]]
"""Ends what the program has started since a moment; whether anything was ended."""


class Use(msgspec.Struct, frozen=True):
    """What a program is about to do."""

    tool_name: str
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""


class ToolHook:
    """The tools of one program. `approves` are names of tools, or patterns of them, that a person is asked about.

    `finishes`: a pause waits for a tool that is at work; otherwise the tool is frozen with its program.
    """

    def __init__(
        self, driver: ProgramApi, approves: Sequence[str], *, end_since: EndSince, finishes: bool = False
    ) -> None:
        self._driver = driver
        self._approves = [one.lower() for one in approves]
        self._end_since = end_since
        self._finishes = finishes
        self._at_work: dict[str, ToolInProgram] = {}
        self._uses = 0

    async def ask(self, raw: bytes) -> bytes:
        """What the program is told: to go on as it is used to, to go on without a question of its own, or not to."""
        try:
            use = msgspec.json.decode(raw, type=Use)
        except msgspec.MsgspecError as error:
            _log.warning("a hook was asked something that is not understood: %s", error)
            return _refused(UNREADABLE)
        self._uses += 1
        begun: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request = self._request(use, begun, self._uses)
        calling: asyncio.Future[Any] = asyncio.ensure_future(self._driver.call(request))
        try:
            await asyncio.wait({calling, begun}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The hook is gone, so the tool will not be used: nobody is to be asked about it any more.
            calling.cancel()
            assert isinstance(request.arguments, bytes)
            mark = fingerprint(request.kind, request.name, self._driver.secrets.json(request.arguments))
            self._driver.start(self._driver.withdraw_approvals(LEFT, of=mark))
            raise
        if not begun.done():
            return _refused(_why(calling))
        calling.add_done_callback(_heard)
        return self._permitted(use, begun.result())

    def finished(self, use: str, result: str) -> None:
        """The result of a tool has come by."""
        if (tool := self._at_work.pop(use, None)) is not None:
            tool.finish(result)

    def _request(
        self, use: Use, begun: asyncio.Future[Any], number: int, arguments: bytes | None = None
    ) -> CallRequest:
        asks = any(fnmatchcase(use.tool_name.lower(), pattern) for pattern in self._approves)

        def perform(permit: Permit) -> Execution:
            if begun.done():
                return RefusedExecution(LEFT)
            begun.set_result(permit.arguments)
            tool = self._at_work[use.tool_use_id or f"use.{number}"] = ToolInProgram(self._end_since)
            return tool

        def revise(edited: bytes) -> CallRequest:
            if not isinstance(msgspec.json.decode(edited), dict):
                raise ValueError("the arguments of a tool are a JSON object")
            return self._request(use, begun, number, edited)

        return CallRequest(
            kind=CallKind.TOOL,
            name=recordable(use.tool_name),
            perform=perform,
            arguments=msgspec.json.encode(use.tool_input) if arguments is None else arguments,
            place=f"hook.{number}",
            on_pause=OnPause.FINISH if self._finishes else OnPause.HOLD,
            approval="block" if asks else None,
            what=_what(use.tool_name, use.tool_input),
            revise=revise,
        )

    def _permitted(self, use: Use, permitted: bytes) -> bytes:
        if not any(fnmatchcase(use.tool_name.lower(), pattern) for pattern in self._approves):
            return b"{}"  # whether it asks a person itself is its own affair
        answer: dict[str, Any] = {"permissionDecision": "allow", "permissionDecisionReason": "Approved in Checkrein."}
        asked = msgspec.json.decode(self._driver.secrets.json(msgspec.json.encode(use.tool_input)))
        given = msgspec.json.decode(permitted)
        if given != asked:
            # What a person did not change goes as it is: what is recorded of it may lack a secret.
            kept = {name: use.tool_input[name] for name in given if name in asked and given[name] == asked[name]}
            answer["updatedInput"] = {**given, **kept}
        return _answer(answer)


class ToolInProgram(Execution):
    """A tool that its program performs. It is frozen with the program; stopped, what it has started is ended."""

    def __init__(self, end_since: EndSince) -> None:
        self._end_since = end_since
        self._since = table.now()
        self._end: Once[CallResult] = Once()
        self._is_stopped = False

    async def ended(self) -> CallResult:
        return await self._end.get()

    def finish(self, result: str) -> None:
        if self._is_stopped:
            return  # what the program makes of its end
        text = recordable(result)[:LONGEST_RESULT]
        self._conclude(CallResult(outcome=Outcome.COMPLETED, result=msgspec.json.encode(text)))

    async def abort(self) -> None:
        if not self._end.done():
            self._is_stopped = True
            ended = await self._end_since(self._since)
            self._conclude(
                CallResult(outcome=Outcome.KILLED) if ended else CallResult(outcome=Outcome.DETACHED, error=INSIDE)
            )

    async def hold(self) -> bool:
        return not self._end.done()

    def _conclude(self, ended: CallResult) -> None:
        if not self._end.done():
            self._end.set(ended)


def _why(calling: asyncio.Future[Any]) -> str:
    """Why there is no permit, for the model to read."""
    if calling.cancelled():
        return STOPPED
    error = calling.exception()
    if isinstance(error, Interrupted):
        return f"Interrupted. {error.instruction}" if error.instruction else STOPPED
    if isinstance(error, CallFailed):
        return error.error or error.message
    return STOPPED if error is None else describe(error)


def _heard(calling: asyncio.Future[Any]) -> None:
    """How it ended is in the journal; the program has it from its own tool."""
    if not calling.cancelled() and (error := calling.exception()) is not None:
        _log.debug("a tool of a program ended: %s", describe(error))


def _what(tool: str, given: Mapping[str, Any]) -> str:
    """How a tool is put to a person: its name, and the first thing that it is given."""
    first = next((value for value in given.values() if isinstance(value, str)), "")
    return recordable(f"{tool}: {first}" if first else tool)[:LONGEST_SHOWN]


def _refused(why: str) -> bytes:
    return _answer({"permissionDecision": "deny", "permissionDecisionReason": why})


def _answer(decision: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}})
