"""Tells receivers elsewhere when a run needs a person, and when it has ended if that is wanted: signed webhooks, Slack.

What is to be told is read from the journal, so that nothing is lost with a server: whatever waits when it starts, and
was not told, is told then. Each thing has an id of its own, made of what it is about; what was delivered is written
down beside the keys of the store, and a receiver that gets a thing twice after a crash knows it by its id. Of several
servers over one store one tells a thing, and another if that one dies over it. The body has no arguments, results or
secrets. Nothing here is waited for by anybody else.

The headers and the signature are those of Standard Webhooks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import random
import sqlite3
import uuid
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from checkrein.asyncutil import TaskSet
from checkrein.core.enums import TERMINAL, UNFINISHED, Status
from checkrein.core.escape import one_line
from checkrein.core.events import RunFinished
from checkrein.core.evolve import evolve
from checkrein.core.state import State, Waiting
from checkrein.core.wording import ENDED
from checkrein.errors import JournalError, ModelUnavailable, RunNotFound, WrongInput
from checkrein.journal.base import Journal
from checkrein.models.http.client import Client as Http
from checkrein.models.http.client import Timeouts
from checkrein.secrets import Secrets
from checkrein.server.delivery_log import DeliveryLog, open_delivery_log

_log = logging.getLogger(__name__)

SECRET_VARIABLE: Final = "CHECKREIN_NOTIFY_SECRET"
SECRET_CHARS: Final = 24
SLACK: Final = "slack:"
SLACK_HOSTS: Final = frozenset({"hooks.slack.com", "hooks.slack-gov.com"})
TIMEOUTS: Final = Timeouts(connect=5.0, first_byte=10.0, between_bytes=10.0)
TRIES: Final = 10
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 300.0
AT_ONCE: Final = 4
"""How many things are told to one receiver at the same time."""
PENDING: Final = 1000
"""How many may wait for a receiver that does not answer; more are left to the next start."""
AGAIN_SECONDS: Final = 1.0
LAST_SECONDS: Final = 1.0
"""So long a server that ends waits for receivers that have not answered."""
CLAIM_SECONDS: Final = 30.0
"""So long a server has a thing for itself, once it has begun to tell it: no try takes longer."""
LOOK_SECONDS: Final = 10.0
"""So often another one looks whether it was told."""
UNREADABLE: Final = (JournalError, sqlite3.Error)
"""What is told, or what was, cannot be read now."""
OLD_SECONDS: Final = 30 * 86_400.0
"""An end that is older than this is told to nobody."""
LATE_SECONDS: Final = 60.0
"""So late a change may be heard of."""
GOAL_CHARS: Final = 200
PAGE: Final = 500


class On(StrEnum):
    """When somebody is told."""

    WAITING = "waiting"
    ENDED = "ended"


class Receiver(NamedTuple):
    """Where something is told. Its address may be a secret itself, as Slack's are: only `name` is ever shown."""

    url: str
    is_slack: bool

    @property
    def name(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def key(self) -> str:
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<Receiver {self.name}>"


def receiver(text: str) -> Receiver:
    """What `--notify` says. Raises `WrongInput` for what is no address; the sentence does not repeat it."""
    is_slack, url = text.startswith(SLACK), text.removeprefix(SLACK)
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        host = None
    if not host:
        raise WrongInput(
            "--notify takes an address that begins with http:// or https://, or slack: and such an address.",
            code="notify_address",
        )
    return Receiver(url, is_slack or host in SLACK_HOSTS)


def moments(text: str) -> frozenset[On]:
    """What `--notify-on` says: `waiting`, `ended`, or both with a comma. Raises `WrongInput`."""
    try:
        return frozenset(On(word.strip()) for word in text.split(","))
    except ValueError:
        raise WrongInput("--notify-on takes waiting, ended, or waiting,ended.", code="notify_on") from None


def signing_key(environment: Mapping[str, str], receivers: Collection[Receiver]) -> bytes:
    """The key that webhooks are signed with. Raises `WrongInput` where one is needed and there is none."""
    secret = environment.get(SECRET_VARIABLE, "")
    if not secret and all(one.is_slack for one in receivers):
        return b""
    if len(secret) < SECRET_CHARS:
        raise WrongInput(
            f"Webhooks are signed: set {SECRET_VARIABLE} to a secret of at least {SECRET_CHARS} characters that the "
            "receiver knows too, for example of `openssl rand -hex 32`.",
            code="notify_secret",
        )
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except NotBase64:
            raise WrongInput(f"{SECRET_VARIABLE} begins with whsec_ and is not base64.", code="notify_secret") from None
    return secret.encode()


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that somebody is told."""

    id: str
    """The same whenever this thing is told."""
    type: str
    """`run.waiting` or `run.ended`."""
    at: float
    """When it was noticed, in Unix seconds."""
    run: str
    agent: str
    status: str
    goal: str = ""
    """Its beginning."""
    owner: str = ""
    waiting: Waiting | None = None
    url: str = ""
    """Where a person looks at the run."""
    text: str = ""
    """All of it in a sentence."""


def signature(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    """As Standard Webhooks has it."""
    signed = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{b64encode(signed).decode()}"


class Notifier:
    """Use as an async context manager: while it is open, receivers are told of the runs of `journal`, whose address is
    `store`."""

    def __init__(
        self,
        journal: Journal,
        receivers: Collection[Receiver],
        key: bytes,
        *,
        store: str,
        on: Collection[On] = frozenset({On.WAITING}),
        base_url: str = "",
        secrets: Secrets | None = None,
        clock: Callable[[], float] | None = None,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._journal = journal
        self._receivers = tuple(dict.fromkeys(receivers))
        self._key = key
        self._store = store
        self._name = uuid.uuid4().hex
        self._on = frozenset(on)
        self._base_url = base_url.rstrip("/")
        self._secrets = Secrets.of(secrets)
        self._clock = clock or journal.now
        self._first_pause = first_pause
        self._http = Http()
        self._deliveries: DeliveryLog
        self._states: dict[str, State] = {}
        """Of unfinished runs, as far as they were read."""
        self._begun: set[tuple[str, str]] = set()
        """What is on its way, was told, or was given up by this server: receiver and id."""
        self._rooms = {one.key: asyncio.Semaphore(AT_ONCE) for one in self._receivers}
        self._tasks = TaskSet()
        self._sending: set[asyncio.Task[None]] = set()
        """Of those, the ones whose receiver may have been told already, and has not answered."""

    async def __aenter__(self) -> Self:
        self._deliveries = await open_delivery_log(self._store, self._journal)
        self._ends_from = await self._deliveries.time("ends_from", self._clock())
        self._seen_until = await self._deliveries.time("seen_until", self._clock())
        self._tasks.start(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks - self._sending:
            task.cancel()
        if self._sending:  # what was taken and is not written down would be told again at the next start
            await asyncio.wait(self._sending, timeout=LAST_SECONDS)
        await self._tasks.cancel()
        await self._http.close()
        try:
            await self._deliveries.release(self._name)
        except UNREADABLE as error:  # what is left, others may tell a little later
            _log.warning("what was not told could not be left to other servers: %s", error)
        await self._deliveries.close()

    # -- noticing

    async def _watch(self) -> None:
        changes = self._journal.changes()  # before the first look, so that nothing comes in between
        again: set[str] | None = None
        while True:
            began = self._clock()
            try:
                if again is None:
                    again = set(await self._missed())
                for run in list(again):
                    with suppress(RunNotFound):  # there is nothing left to tell of it
                        await self._look(run)
                    again.discard(run)
                if began - self._seen_until > 2 * LATE_SECONDS:
                    # Only now, and with time to spare: what was not looked at is looked at again after a crash.
                    self._seen_until = began - LATE_SECONDS
                    await self._deliveries.set_time("seen_until", self._seen_until)
                again |= await anext(changes)
            except UNREADABLE as error:
                _log.warning("what is to be told could not be read, and will be again: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    async def _missed(self) -> list[str]:
        """Runs of which something may not have been told: those that are not finished, or have ended since."""
        found = await self._all_runs(UNFINISHED)
        if On.ENDED in self._on:
            found += await self._all_runs(TERMINAL, changed_after=self._seen_until)
        return found

    async def _all_runs(self, status: Collection[Status], changed_after: float | None = None) -> list[str]:
        found: list[str] = []
        before: str | None = None
        while True:
            rows = await self._journal.runs(status=status, changed_after=changed_after, limit=PAGE, before=before)
            found += [row.id for row in rows]
            if len(rows) < PAGE:
                return found
            before = rows[-1].id

    async def _look(self, run: str) -> None:
        # What is known of it stays while it is read: whoever delivers looks whether a thing still waits.
        before = self._states.get(run)
        state = await self._read(run, before)
        if not state.is_finished:
            self._states[run] = state
            if On.WAITING in self._on:
                for id, waiting in needs(state):
                    await self._tell(self._notice(state, id, waiting))
            return
        if self._states.pop(run, None) is not None and before is not None:
            self._begun -= {(one.key, id) for id, _ in needs(before) for one in self._receivers}
        if On.ENDED in self._on and state.parent is None:
            await self._look_at_end(state)

    async def _look_at_end(self, state: State) -> None:
        id = _id(state.run, "ended")
        if all((one.key, id) in self._begun for one in self._receivers):
            return
        records = await self._journal.read(state.run)
        ended_at = next((one.event.at for one in reversed(records) if isinstance(one.event, RunFinished)), 0.0)
        if ended_at >= max(self._ends_from, self._clock() - OLD_SECONDS):
            await self._tell(self._notice(state, id, None))

    async def _read(self, run: str, state: State | None) -> State:
        if state is None:
            return await self._journal.load(run)
        for record in await self._journal.read(run, after=state.seq):
            state = evolve(state, record.event, record.seq)
        return state

    def _notice(self, state: State, id: str, waiting: Waiting | None) -> Notice:
        goal = one_line(self._secrets.text(state.goal), GOAL_CHARS)
        if waiting is not None:
            told = f"Run {state.run} of {state.agent} waits for you: {waiting.what}. {waiting.remedy}"
            clean = msgspec.structs.replace(
                waiting, what=self._secrets.text(waiting.what), remedy=self._secrets.text(waiting.remedy)
            )
        else:
            told, clean = f"Run {state.run} of {state.agent} {ENDED[state.status]}.", None
        return Notice(
            id=id,
            type="run.ended" if waiting is None else "run.waiting",
            at=self._clock(),
            run=state.run,
            agent=state.agent,
            status=state.status,
            goal=goal,
            owner=state.owner,
            waiting=clean,
            url=f"{self._base_url}/runs/{state.run}" if self._base_url else "",
            text=one_line(self._secrets.text(told)).strip(),
        )

    # -- telling

    async def _tell(self, notice: Notice) -> None:
        """Begin to tell each receiver that was not told."""
        for one in self._receivers:
            if (one.key, notice.id) in self._begun:
                continue
            if len(self._tasks) > PENDING:
                _log.error("too much waits for receivers; not told: %s", notice.text, extra={"run": notice.run})
                return
            self._begun.add((one.key, notice.id))
            self._tasks.start(self._deliver(one, notice))

    async def _deliver(self, one: Receiver, notice: Notice) -> None:
        """Tell it, unless another server does."""
        while notice.waiting is None or self._still_waits(notice):
            async with self._rooms[one.key]:
                pause = await self._not_ours_for(one, notice)
                if pause is None:
                    return
                if not pause:
                    return await self._try(one, notice)
            await asyncio.sleep(pause)

    async def _not_ours_for(self, one: Receiver, notice: Notice) -> float | None:
        """For how long to leave it to another server; 0: it is for this one to tell. None: it was told."""
        try:
            held = await self._claim(one, notice, CLAIM_SECONDS)
        except UNREADABLE as error:
            _log.warning("who tells it is not known, and is asked again: %s", error, extra={"run": notice.run})
            return AGAIN_SECONDS
        return held and min(max(held - self._clock(), AGAIN_SECONDS), LOOK_SECONDS)

    async def _claim(self, one: Receiver, notice: Notice, seconds: float) -> float | None:
        now = self._clock()
        return await self._deliveries.claim(one.key, notice.id, self._name, until=now + seconds, now=now)

    async def _try(self, one: Receiver, notice: Notice) -> None:
        for tried in range(TRIES):
            if tried:
                pause = self._pause(tried)
                await self._or_log(self._claim(one, notice, pause + CLAIM_SECONDS), notice)
                await asyncio.sleep(pause)
            if notice.waiting is not None and not self._still_waits(notice):
                return
            why, may_retry = await self._send_and_note(one, notice)
            if not why:
                return
            _log.warning("%s was not told (%s): %s", one.name, why, notice.text, extra={"run": notice.run})
            if not may_retry:
                return
        _log.error("%s is told no more of this by this server: %s", one.name, notice.text, extra={"run": notice.run})

    async def _send_and_note(self, one: Receiver, notice: Notice) -> tuple[str, bool]:
        """Why it was not taken, if it was not, and whether it may be later. What was taken is written down."""
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)
        try:
            why, may_retry = await self._send(one, notice)
            if not why or not may_retry:  # what was refused for good is not told again, by whichever server
                await self._or_log(self._deliveries.note(one.key, notice.id, now=self._clock()), notice)
            return why, may_retry
        finally:
            self._sending.discard(task)

    async def _or_log(self, written: Awaitable[object], notice: Notice) -> None:
        try:
            await written
        except UNREADABLE as error:
            _log.warning("it may be told twice: %s", error, extra={"run": notice.run})

    def _still_waits(self, notice: Notice) -> bool:
        state = self._states.get(notice.run)
        return state is not None and any(id == notice.id for id, _ in needs(state))

    def _pause(self, tried: int) -> float:
        return min(LONGEST_PAUSE_SECONDS, self._first_pause * 2.0 ** (tried - 1)) * random.uniform(0.75, 1.25)

    async def _send(self, one: Receiver, notice: Notice) -> tuple[str, bool]:
        headers = {"content-type": "application/json"}
        if one.is_slack:
            body = msgspec.json.encode({"text": _for_slack(notice)})
        else:
            body = msgspec.json.encode(notice)
            timestamp = str(int(self._clock()))
            headers["webhook-id"], headers["webhook-timestamp"] = notice.id, timestamp
            headers["webhook-signature"] = signature(self._key, notice.id, timestamp, body)
        try:
            response = await self._http.post(one.url, headers, body, who="The receiver", timeouts=TIMEOUTS)
        except ModelUnavailable as error:
            return error.reason or "unreachable", True
        response.close()
        if 200 <= response.status < 300:
            return "", False
        return f"HTTP {response.status}", response.status >= 500 or response.status in (408, 425, 429)


def needs(state: State) -> Iterator[tuple[str, Waiting]]:
    """What a run needs a person for, each thing with an id that is the same as long as it is the same thing."""
    if state.is_finished:
        return
    for one in state.asked():
        doubt = state.doubts.get(one.call or "")
        of = state.paused_by if one.call is None else None if doubt is None else doubt.attempt
        yield _id(state.run, one.kind, one.call or "", str(of or "")), one


def _id(*parts: str) -> str:
    return "ntf_" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _for_slack(notice: Notice) -> str:
    """Slack reads `<`, `>` and `&` as its own, so what a model or a person wrote must not bring any."""
    lines = [notice.text, *([f"“{notice.goal}”"] if notice.goal else []), *([notice.url] if notice.url else [])]
    return "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
