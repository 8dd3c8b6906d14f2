"""The Temporal side of its engine: one standalone activity for each run that is to be driven.

It lives in a thread with an event loop of its own, as the renewal of leases does: a program that blocks the event loop
of its driver for seconds costs a run neither its lease nor its activity.

An attempt of an activity is worth nothing by itself. Temporal may run two at once, and one that it has given up may go
on here; both have to claim the lease in the journal like anybody. So an attempt that Temporal cancels, or that timed
out while Temporal was away, leaves its run alone: it goes on until the run needs no driver here any more.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from temporalio import activity
from temporalio.client import ActivityExecutionStatus, Client, PendingActivityState
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig
from temporalio.worker import Worker

from checkrein.engines.temporal import TemporalOptions, TryElsewhere
from checkrein.errors import EngineUnavailable

ACTIVITY: Final = "checkrein-run"
"""The type of the activities, as Temporal lists them."""
PREFIX: Final = "run:"
"""Before the id of a run in that of its activity."""
ASK_SECONDS: Final = 3.0
"""How long Temporal may take to answer before it counts as away."""
AGAIN_SECONDS: Final = 1.0
"""How long to wait before a server that is away is connected to again."""
CLOSE_SECONDS: Final = 5.0
"""How long ending the connection may take, once every attempt has ended; a server that is away may not answer."""
LONGEST: Final = timedelta(days=3650)
"""Temporal wants a limit for an attempt. How long a run may take is not its business."""
BEATS: Final = 5
"""How often an attempt gives a sign of life within the heartbeat timeout. The SDK sends fewer of them."""

T = TypeVar("T")


class Activities:
    """Places runs in a task queue, and polls it. To be used from the event loop that it is opened on.

    `drive` is called there, for each attempt, and returns what became of the run when it is driven here no more, or
    raises `TryElsewhere`. No more than `slots` attempts are under way at a time.
    """

    def __init__(
        self,
        options: TemporalOptions,
        *,
        drive: Callable[[str], Coroutine[Any, Any, str]],
        slots: int,
        heartbeat_seconds: float,
        identity: str,
    ) -> None:
        self._options = options
        self._drive = drive
        self._slots = slots
        self._heartbeat_seconds = options.heartbeat_seconds or heartbeat_seconds
        self._identity = identity
        self._client: Client | None = None
        self._worker: Worker | None = None
        self._attempts: dict[str, asyncio.Event] = {}
        """The attempt that a run has here, to be told when another one takes its place."""
        self._stopping = False
        self._driving: asyncio.AbstractEventLoop
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._serving: asyncio.Task[None]
        self._thread = threading.Thread(target=self._run, name="checkrein-temporal", daemon=True)
        self._begun = threading.Event()

    async def open(self, *, patient: bool) -> None:
        """Connect and begin to poll. Raises `EngineUnavailable`; if `patient`, tries for ever instead, beside."""
        self._driving = asyncio.get_running_loop()
        self._thread.start()
        # At the end of a program that did not close this, its threads must not be in the SDK any more.
        atexit.register(self._stop_thread)
        await asyncio.to_thread(self._begun.wait)
        try:
            await self._in_thread(self._begin(patient))
        except BaseException:
            await self.close()
            raise

    async def stop(self) -> None:
        """Poll no more. Returns when every attempt has ended and Temporal has been told, or does not listen."""
        await self._in_thread(self._stop())

    async def close(self) -> None:
        """End the thread. Attempts that are still under way are let go; so are their runs, for whoever comes next."""
        atexit.unregister(self._stop_thread)
        await asyncio.to_thread(self._stop_thread)

    # -- asked by the engine

    @property
    def is_full(self) -> bool:
        """Whether nothing more is taken before an attempt has ended."""
        return len(self._attempts) >= self._slots

    async def place(self, run: str, *, move: bool = False) -> None:
        """Have a run driven, by whichever worker of the queue; one that is placed already stays as it is.

        With `move`, one that waits in another queue comes into this. Raises `EngineUnavailable` where it is not known
        whether it was placed.
        """
        await self._in_thread(self._ask(lambda client: self._start(client, run, move)))

    async def placed(self) -> list[str]:
        """The runs that have an open activity in this queue. Raises `EngineUnavailable`."""
        return await self._in_thread(self._ask(self._list))

    async def end(self, run: str, why: str) -> None:
        """Close the activity of a run. Raises `EngineUnavailable`."""
        await self._in_thread(self._ask(lambda client: self._terminate(client, run, why)))

    async def _in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    # -- in the thread

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._end = asyncio.Event()
            self._begun.set()
            runner.run(self._until_the_end())

    async def _until_the_end(self) -> None:
        await self._end.wait()

    def _stop_thread(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(CLOSE_SECONDS)

    async def _begin(self, patient: bool) -> None:
        if not patient:
            self._client = await connect(self._options, self._identity)
        self._serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        while not self._stopping:
            with suppress(EngineUnavailable, RuntimeError):  # whoever places a run says that Temporal is away
                if self._client is None:
                    self._client = await connect(self._options, self._identity)
                self._worker = Worker(
                    self._client,
                    task_queue=self._options.task_queue,
                    activities=[self._attempt],
                    max_concurrent_activities=self._slots,
                    identity=self._identity,
                    # Attempts end with their runs, which have a time of their own to be handed over in.
                    graceful_shutdown_timeout=timedelta(hours=1),
                )
                await self._worker.run()
            if not self._stopping:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _stop(self) -> None:
        self._stopping = True
        if self._worker is not None and self._worker.is_running:
            await self._worker.shutdown()
        self._serving.cancel()
        await asyncio.wait([self._serving])

    @activity.defn(name=ACTIVITY)
    async def _attempt(self, run: str) -> str:
        """One attempt of the activity of `run`. What it returns is shown by Temporal."""
        # Of two attempts of one run, the later is the one that Temporal listens to; the other gives its slot back.
        if (earlier := self._attempts.get(run)) is not None:
            earlier.set()
        replaced = self._attempts[run] = asyncio.Event()
        driving = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._drive(run), self._driving))
        waiting = asyncio.create_task(replaced.wait())
        try:
            while not driving.done() and not replaced.is_set():
                activity.heartbeat()
                await self._beat(driving, waiting)
            return driving.result() if driving.done() else "another attempt has it"
        except TryElsewhere as error:
            again = timedelta(seconds=error.seconds) if error.seconds else None
            benign = ApplicationErrorCategory.BENIGN
            raise ApplicationError(str(error), next_retry_delay=again, category=benign) from None
        finally:
            driving.cancel()
            waiting.cancel()
            if self._attempts.get(run) is replaced:
                del self._attempts[run]

    async def _beat(self, *ends: asyncio.Future[Any]) -> None:
        try:
            seconds = self._heartbeat_seconds / BEATS
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            details, task = activity.cancellation_details(), asyncio.current_task()
            if details is None or details.worker_shutdown or task is None:
                raise
            task.uncancel()  # Temporal has given this attempt up; the run is the lease's

    # -- what Temporal is asked

    async def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        if self._client is None:
            raise _away(self._options, "is not connected")
        return await _answered(self._options, lambda client=self._client: question(client))  # type: ignore[misc]

    async def _start(self, client: Client, run: str, move: bool) -> None:
        if move and await self._waits_elsewhere(client, run):
            await self._terminate(client, run, f"moved to the task queue {self._options.task_queue}")
        await client.start_activity(
            ACTIVITY,
            run,
            id=PREFIX + run,
            task_queue=self._options.task_queue,
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=ActivityIDReusePolicy.ALLOW_DUPLICATE,
            start_to_close_timeout=LONGEST,
            heartbeat_timeout=timedelta(seconds=self._heartbeat_seconds),
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=0.1), maximum_interval=timedelta(seconds=AGAIN_SECONDS)
            ),
        )

    async def _waits_elsewhere(self, client: Client, run: str) -> bool:
        try:
            found = await client.get_activity_handle(PREFIX + run).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        waits = found.status is ActivityExecutionStatus.RUNNING and found.run_state is PendingActivityState.SCHEDULED
        return waits and found.task_queue != self._options.task_queue

    async def _list(self, client: Client) -> list[str]:
        return [one.activity_id.removeprefix(PREFIX) async for one in client.list_activities(_open_in(self._options))]

    async def _terminate(self, client: Client, run: str, why: str) -> None:
        try:
            await client.get_activity_handle(PREFIX + run).terminate(reason=why)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it has just ended
                raise


def _open_in(options: TemporalOptions) -> str:
    queue = options.task_queue.replace("\\", "\\\\").replace("'", "\\'")
    return f"ActivityType = '{ACTIVITY}' AND TaskQueue = '{queue}' AND ExecutionStatus = 'Running'"


async def connect(options: TemporalOptions, identity: str = "checkrein") -> Client:
    """A connection to a server that has the namespace and knows standalone activities. Raises `EngineUnavailable`."""

    async def ask() -> Client:
        client = await Client.connect(
            options.address,
            namespace=options.namespace,
            tls=_tls(options),
            identity=identity,
            runtime=_runtime(),
        )
        await client.count_activities(_open_in(options))
        return client

    return await _answered(options, ask)


async def _answered(options: TemporalOptions, ask: Callable[[], Awaitable[T]]) -> T:
    try:
        # The SDK tries again by itself for longer than that, and its own timeout is that of each try.
        async with asyncio.timeout(ASK_SECONDS):
            return await ask()
    except TimeoutError:
        raise _away(options, f"does not answer within {ASK_SECONDS:g} s") from None
    except RPCError as error:
        _refuse(options, error)
    except RuntimeError as error:  # how the SDK says that a connection was not made
        reasons = re.findall(r'message: "([^"]+)"', str(error)) or [_first_line(error)]
        raise _away(options, f"is not reached: {reasons[-1]}") from None


def _refuse(options: TemporalOptions, error: RPCError) -> NoReturn:
    if error.status is RPCStatusCode.NOT_FOUND:
        raise EngineUnavailable(
            f"Temporal at {options.address} has no namespace {options.namespace}.",
            remedy=f"Create it (temporal operator namespace create {options.namespace}), or name another.",
        ) from None
    if error.status is RPCStatusCode.UNIMPLEMENTED:
        raise EngineUnavailable(
            f"Temporal at {options.address} does not know standalone activities.",
            remedy="Use a later server, with standalone activities enabled.",
        ) from None
    raise _away(options, f"refuses: {_first_line(error)}") from None


def _away(options: TemporalOptions, what: str) -> EngineUnavailable:
    return EngineUnavailable(f"Temporal at {options.address} {what}.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def _tls(options: TemporalOptions) -> TLSConfig | bool:
    files = (options.tls_ca, options.tls_cert, options.tls_key)
    if files == (None, None, None):
        return False
    ca, cert, key = (None if file is None else _read(file) for file in files)
    return TLSConfig(server_root_ca_cert=ca, client_cert=cert, client_private_key=key)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise EngineUnavailable(
            f"{file} cannot be read: {error.strerror}.", remedy="Name a file with a certificate or a key in PEM."
        ) from None


@cache
def _runtime() -> Runtime:
    """One for the process. What its core has to say about a server that is away, every second, is ours to say once."""
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=quiet), worker_heartbeat_interval=None)
