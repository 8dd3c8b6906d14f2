"""One path for every verb, from whichever process: load, decide, append, wait for the receipt.

A verb is accepted by whoever appends it, and settled by whoever holds the run's lease. Where nobody does, control
claims the run, settles what needs no user code, and lets it go again; undos wait for a process that has the agent.

Secrets that a person has typed: into a reason, an instruction, a question, a note, or the result of a call.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from checkrein.calls.base import fingerprint as fingerprint_of
from checkrein.calls.sub_run import WHY
from checkrein.control.call_view import decoded
from checkrein.control.undriven import UndrivenRuns
from checkrein.control.verb_requests import ReceiptWaiter, VerbRequest, find_repeat, new_id
from checkrein.control.verb_requests import Settling as Settling
from checkrein.core import commands as c
from checkrein.core.commands import Command
from checkrein.core.decide.verdict import Joined
from checkrein.core.effects import Effect
from checkrein.core.enums import STOPS_BY_DRIVER, TERMINAL, UNFINISHED, Answer, CallKind, Undo, Verb, When
from checkrein.core.events import (
    HELD_PREFIX,
    ApprovalRequested,
    CallFinished,
    CheckAsked,
    Event,
    ReasonAdded,
    VerbJoined,
    approval_id,
)
from checkrein.core.json_schema import misfits
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.driver.ownership import has_waiting_stop, is_driven
from checkrein.errors import JournalError, MisuseError, Refused
from checkrein.journal.base import Journal, Owner, Recorded, RunRow
from checkrein.journal.commands import take_command
from checkrein.processes.supervisor import tell_stop_waits
from checkrein.secrets import Secrets, SecretsGiven
from checkrein.timings import WAIT_SECONDS

_log = logging.getLogger(__name__)

_TYPED: Final = ("reason", "instruction", "question", "note")


def redacted_command(secrets: Secrets, command: Command) -> Command:
    """`command` without secrets in what a person typed."""
    typed = {name: getattr(command, name, None) for name in _TYPED}
    clean: dict[str, Any] = {name: secrets.text(text) for name, text in typed.items() if isinstance(text, str)}
    result = getattr(command, "result", None)
    if result is not None:
        clean["result"] = msgspec.Raw(secrets.json(bytes(result)))
    return msgspec.structs.replace(command, **clean)


_LOCKED_SECONDS: Final = 2.0
"""After so long without being accepted a verb is taken to wait for a process that stands still."""

_STOPS: Final = ("pause", "cancel", "abort")
"""Verbs that are never refused for the id of their request."""

Taken = tuple[tuple[Event, ...] | Joined, State]
"""What was appended, or whose receipt answers it, and the state that it was decided on."""
Take = Callable[[], Awaitable[Taken]]


class Control:
    """Verbs on the runs of a journal. `owner` is this process, should it have to claim a run.

    `secrets` are taken out of what people type; without any given, those of this process's environment. Without a
    `clock`, times are those of the store.
    """

    def __init__(
        self, journal: Journal, owner: Owner, *, clock: Callable[[], float] | None = None, secrets: SecretsGiven = None
    ) -> None:
        self._journal = journal
        self._secrets = Secrets.of(secrets)
        self._clock = clock or journal.now
        self._undriven = UndrivenRuns(journal, owner, self._clock)
        self._receipts = ReceiptWaiter(journal, self._undriven, self._clock)

    def hurry(self) -> None:
        """From now on nobody is kept waiting for a receipt: whoever does is told what their verb waits for."""
        self._receipts.hurry()

    # -- the verbs

    async def pause(
        self, run: str, *, by: str, reason: str = "", request_id: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "pause", request_id, by=by)
        stamp = self._stamp(asked, by, reason)

        def below(child: str) -> c.Command:
            return c.PauseRun(id=HELD_PREFIX + new_id(), at=self._clock(), by=by, reason=WHY)

        return await self._verb(asked, c.PauseRun(**stamp), wait, below)

    async def resume(
        self,
        run: str,
        instruction: str | None = None,
        *,
        by: str,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "resume", request_id)
        stamp = self._stamp(asked, by, reason, expected_seq)
        return await self._verb(asked, c.ResumeRun(instruction=instruction, **stamp), wait)

    async def redirect(
        self,
        run: str,
        instruction: str,
        *,
        by: str,
        when: When = When.NOW,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "redirect", request_id)
        stamp = self._stamp(asked, by, reason, expected_seq)
        return await self._verb(asked, c.RedirectRun(instruction=instruction, when=when, **stamp), wait)

    async def cancel(
        self,
        run: str,
        *,
        by: str,
        undo: Undo = Undo.OPEN,
        reason: str = "",
        request_id: str = "",
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "cancel", request_id, by=by)
        stamp = self._stamp(asked, by, reason)

        def below(child: str) -> c.Command:
            return c.CancelRun(id=f"{child}.stop.{undo}", at=self._clock(), by=by, reason=WHY, undo=undo)

        return await self._verb(asked, c.CancelRun(undo=undo, **stamp), wait, below)

    async def ask(
        self,
        run: str,
        question: str,
        *,
        by: str,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 60.0,
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "ask", request_id)
        stamp = self._stamp(asked, by, reason, expected_seq)
        return await self._verb(asked, c.AskRun(question=question, **stamp), wait)

    async def why_unanswered(self, receipt: Receipt) -> str:
        """Why a question got no answer: what went wrong when it was put to the model, or that it was stopped."""
        accepted, *records = await self._journal.read(receipt.run, after=receipt.seq - 1)
        ends = (record.event for record in reversed(records) if isinstance(record.event, CallFinished))
        error = next((end.error for end in ends if end.call == f"ask:{accepted.event.id}"), None)
        return (error or "it was stopped before there was one").removesuffix(".")

    async def abort(
        self, run: str, call: str, *, by: str, reason: str = "", request_id: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        asked = VerbRequest.made(run, "abort", request_id, call)
        stamp = self._stamp(asked, by, reason)
        return await self._verb(asked, c.AbortCall(call=call, **stamp), wait)

    # -- decisions about single calls: they are in force when they are taken, and have no receipt

    async def approve(
        self,
        run: str,
        call: str,
        *,
        by: str,
        note: str = "",
        fingerprint: str = "",
        arguments: dict[str, Any] | None = None,
        always: bool = False,
        request_id: str = "",
    ) -> State:
        """Let a call be made. Raises `Refused`, with the code `not_as_shown` where `fingerprint` is not that of the
        call, and `arguments_do_not_fit` where its tool does not take the `arguments` that are given instead."""
        asked = VerbRequest.made(run, "approve", request_id, call)
        stamp = self._stamp(asked, by, note) | {"call": call, "fingerprint": fingerprint, "always": always}
        if arguments:
            stamp |= await self._edited(asked, arguments)
        return await self._decide(asked, c.ApproveCall(**stamp))

    async def _edited(self, asked: VerbRequest, arguments: dict[str, Any]) -> dict[str, Any]:
        """What a call is to be made with where a person wants some arguments to be others: all of them, as JSON."""
        found = await self._journal.find(asked.run, approval_id(asked.call))
        event = None if found is None else found.event
        if not isinstance(event, ApprovalRequested):
            return {}  # nothing that could be approved: said by whoever decides
        if not isinstance(arguments, dict):
            raise _misfit(asked, ["arguments are given by name, as an object"])
        try:
            instead = {name: msgspec.Raw(self._secrets.json(_as_json(one))) for name, one in arguments.items()}
        except (TypeError, ValueError) as error:
            raise _misfit(asked, [f"JSON cannot hold what is given: {error}"]) from error
        before = {} if event.arguments is None else msgspec.json.decode(bytes(event.arguments), type=_RawValues)
        edited = msgspec.json.encode({**before, **instead})
        if edited == msgspec.json.encode(before):
            return {}
        if wrong := [] if event.schema is None else misfits(decoded(edited), decoded(event.schema)):
            raise _misfit(asked, wrong)
        return {"arguments": msgspec.Raw(edited), "edited": fingerprint_of(CallKind.TOOL, event.name, edited)}

    async def deny(self, run: str, call: str, *, by: str, note: str = "", request_id: str = "") -> State:
        asked = VerbRequest.made(run, "deny", request_id, call)
        stamp = self._stamp(asked, by, note)
        return await self._decide(asked, c.DenyCall(call=call, **stamp))

    async def resolve(
        self, run: str, call: str, answer: Answer, *, by: str, result: Any = None, note: str = "", request_id: str = ""
    ) -> State:
        asked = VerbRequest.made(run, "resolve", request_id, call)
        stamp = self._stamp(asked, by, note)
        encoded = None if result is None else msgspec.Raw(msgspec.json.encode(result))
        return await self._decide(asked, c.ResolveCall(call=call, answer=answer, result=encoded, **stamp))

    async def retry_undo(self, run: str, effect: str, *, by: str, request_id: str = "") -> State:
        asked = VerbRequest.made(run, "retry_undo", request_id, effect)
        stamp = self._stamp(asked, by, "")
        return await self._decide(asked, c.RetryUndo(effect=effect, effects=(), **stamp))

    async def check(self, run: str, call: str, *, by: str, request_id: str = "") -> State:
        """Have the tool of a call in doubt asked once more whether it happened. What it says comes as `call.checked`.

        Raises `Refused` when there is no such doubt, or nobody at work who could ask the tool.
        """
        asked = VerbRequest.made(run, "check", request_id, call)

        async def take() -> Taken:
            state = await self._journal.load(run)
            if call not in state.doubts:
                sentence = f"Call {call} of run {run} is not in doubt."
                raise Refused(sentence, code="not_in_doubt", run=run, status=state.status)
            if state.is_finished or not await self._is_driven(run):
                sentence = f"Nobody is at work on run {run} who could ask the tool; decide by what it said before."
                raise Refused(sentence, code="nobody_at_work", run=run, status=state.status)
            return await self._note(state, CheckAsked(id=asked.id, at=self._clock(), call=call, by=by))

        return await self._once(asked, take)

    async def add_reason(self, run: str, reason: str, *, by: str, note: str = "", request_id: str = "") -> None:
        """Say why a run was stopped, also afterwards."""
        asked = VerbRequest.made(run, "add_reason", request_id)
        reason, note = self._secrets.text(reason), self._secrets.text(note)

        async def take() -> Taken:
            at, store_at = self._clock(), self._journal.now()
            event = ReasonAdded(id=asked.id, at=at, reason=reason, by=by, note=note, store_at=store_at)
            return await self._note(await self._journal.load(run), event)

        await self._once(asked, take)

    def _stamp(self, asked: VerbRequest, by: str, reason: str, expected_seq: int | None = None) -> dict[str, Any]:
        at = self._clock()
        return {"id": asked.id, "at": at, "by": by, "reason": reason, "asked_at": at, "expected_seq": expected_seq}

    # -- the path

    async def _verb(
        self, asked: VerbRequest, command: c.Command, wait: float, cascade: Callable[[str], c.Command] | None = None
    ) -> Receipt | Settling:
        try:
            known, taken = await self._accepted(asked, lambda: self._take(asked, command))
        except Refused as refused:
            if refused.code != "request_id_used" or asked.verb not in _STOPS:
                raise
            return await self._verb(asked.renamed(), command, wait, cascade)
        if known is not None:
            if isinstance(known.event, VerbJoined):
                return await self._receipts.wait(asked.run, known.event.accepted, 0, wait)
            return await self._receipts.wait(asked.run, asked.id, known.seq, wait)
        assert taken is not None
        verdict, state = taken
        if cascade is not None:
            await self._cascade(asked.run, cascade)
        if asked.verb in STOPS_BY_DRIVER:
            await self._have_owner_watched(asked.run)
        if isinstance(verdict, Joined):
            await self._note_joined(asked, verdict.accepted, state)
            return await self._receipts.wait(asked.run, verdict.accepted, 0, wait)
        return await self._receipts.wait(asked.run, asked.id, state.seq, wait)

    async def _note_joined(self, asked: VerbRequest, accepted: str, state: State) -> None:
        """Write down whose receipt has answered a request, for the case that it is made again later; and that a cancel
        was asked for twice, since its driver then waits for no atomic section.

        A finished run gives the same answer for ever. The verb is in force whether this is taken or not.
        """
        hurries = asked.verb == Verb.CANCEL and any(live.stop is Verb.CANCEL for live in state.live.values())
        if not (asked.is_named or hurries) or accepted == asked.id or state.is_finished:
            return
        joined = VerbJoined(
            id=asked.id,
            at=self._clock(),
            verb=Verb(asked.verb),
            accepted=accepted,
            by=asked.by,
            store_at=self._journal.now(),
        )
        try:
            await self._note(state, joined)
        except (JournalError, MisuseError) as error:
            _log.info("whose receipt answers a %s was not recorded: %s", asked.verb, error, extra=asked.logged)

    async def _decide(self, asked: VerbRequest, command: c.Command) -> State:
        return await self._once(asked, lambda: self._take(asked, command))

    async def _once(self, asked: VerbRequest, take: Take) -> State:
        """Have it taken, unless it was before. The state that it was decided on, or the one that a repeat meets."""
        _, taken = await self._accepted(asked, take)
        return await self._journal.load(asked.run) if taken is None else taken[1]

    async def _accepted(self, asked: VerbRequest, take: Take) -> tuple[Recorded | None, Taken | None]:
        """What was recorded of this request before, or else what was taken now. Raises `Refused`."""
        known = await self._known(asked)
        if known is not None:
            _log.info("%s of run %s is made again: it was taken before", asked.verb, asked.run, extra=asked.logged)
            return known, None
        try:
            return None, await take()
        except (Refused, MisuseError) as refused:
            # The same request may have been taken since we looked, from another process that it was sent to as well:
            # then it was refused only because it is in force already.
            known = await self._known(asked)
            if known is None:
                _log.info("%s was refused (%s): %s", asked.verb, refused.code, refused, extra=asked.logged)
                raise
            return known, None

    async def _known(self, asked: VerbRequest) -> Recorded | None:
        if not asked.is_named:
            return None
        return await find_repeat(self._journal, asked.run, asked.id, verb=asked.verb, call=asked.call)

    async def _note(self, state: State, event: Event) -> Taken:
        """Write down what needs no decision, whatever comes in between."""
        await self._journal.append(state.run, [event], after=0)
        return (event,), state

    async def _take(self, asked: VerbRequest, command: c.Command) -> Taken:
        """Have `command` taken, with what it must know of the run at that moment."""
        known: dict[str, Any] = {"id": asked.id}

        async def look() -> None:
            known["driven"] = await self._is_driven(asked.run)

        def made(state: State, effects: tuple[Effect, ...]) -> c.Command:
            if isinstance(command, c.ResolveCall | c.RetryUndo):
                known["effects"] = effects
            return redacted_command(self._secrets, msgspec.structs.replace(command, at=self._clock(), **known))

        must_look = isinstance(command, c.ResumeRun | c.RedirectRun)
        late = asyncio.get_running_loop().create_task(self._have_everybody_watched())
        try:
            return await take_command(self._journal, asked.run, made, look=look if must_look else None)
        finally:
            late.cancel()

    # -- nothing that a driver does keeps a person from stopping it

    async def _have_owner_watched(self, run: str) -> None:
        """If a stop waits for whoever drives `run`, have that process watched: one that does not answer is killed."""
        try:
            lease = await self._journal.lease(run)
            is_waiting = lease is not None and has_waiting_stop(await self._journal.load(run))
        except JournalError as error:
            # The verb is in force all the same, and the owner finds it when it renews its leases.
            _log.warning("whoever drives run %s was not told that a stop waits: %s", run, error, extra={"run": run})
            return
        if lease is not None and is_waiting:
            await tell_stop_waits([lease.owner])

    async def _have_everybody_watched(self) -> None:
        """A verb that cannot even be accepted: a driver that stands still in the middle of a commit locks the store."""
        await asyncio.sleep(_LOCKED_SECONDS)
        try:
            rows = await self._journal.runs(status=UNFINISHED, limit=10_000)
            leases = await self._journal.leases([row.id for row in rows])
        except JournalError as error:
            _log.warning("A verb waits for the store, and nobody knows for whom the store waits: %s", error)
            return
        await tell_stop_waits([lease.owner for lease in leases.values()])

    async def _cascade(self, run: str, make: Callable[[str], c.Command]) -> None:
        """Pass a stop on to every run below, whether or not somebody drives the one above."""
        state = await self._journal.load(run)
        for row in await self._journal.runs(root=state.root or run, limit=10_000):
            if row.status not in TERMINAL and await self._descends(row, run):
                await self._pass_on(row.id, make(row.id))

    async def _pass_on(self, run: str, command: c.Command) -> None:
        try:
            await take_command(self._journal, run, lambda state, effects: command)
            await self._have_owner_watched(run)
        except (Refused, JournalError) as error:
            # It has ended by itself, or its parent's driver passes the stop on once the journal answers again.
            _log.info("a stop was not passed on to run %s: %s", run, error, extra={"run": run})

    async def _descends(self, row: RunRow, run: str) -> bool:
        """Whether `row` is below `run`, and not beside it under the same root."""
        parent = row.parent
        while parent is not None and parent != run:
            parent = (await self._journal.load(parent)).parent
        return parent == run

    async def _is_driven(self, run: str) -> bool:
        return await is_driven(self._journal, run, at=self._clock())

    async def settle_undriven(self, run: str) -> None:
        """Settle what needs no user code on a run that nobody drives. Does nothing if somebody is faster."""
        await self._undriven.settle(run)


_RawValues: Final = dict[str, msgspec.Raw]


def _as_json(value: Any) -> bytes:
    """`value` as JSON, and nothing else in its place: a number that is none is refused."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _misfit(asked: VerbRequest, wrong: Sequence[str]) -> Refused:
    told = f"Call {asked.call} of run {asked.run} was not approved: {'; '.join(wrong)}."
    return Refused(told, code="arguments_do_not_fit", run=asked.run)
