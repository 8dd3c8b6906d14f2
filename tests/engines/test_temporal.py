"""The engine that places runs by Temporal, with a real server: what it does beyond the contract of every engine."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trustme

from checkrein import Runtime
from checkrein.core.enums import Status
from checkrein.core.events import RunCreated
from checkrein.engines.temporal import TemporalEngine, TemporalOptions
from checkrein.engines.temporal_activities import ACTIVITY, connect
from checkrein.errors import EngineUnavailable
from checkrein.journal import open_journal
from tests.engines.temporal_process import stepper
from tests.support.patience import PATIENCE_SECONDS
from tests.support.temporal import TemporalServer
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def let(log: str, name: str) -> None:
    Path(f"{log}.{name}").touch()


@pytest.fixture
def options(temporal: TemporalServer) -> TemporalOptions:
    return TemporalOptions(address=temporal.address, namespace=temporal.new_namespace())


async def activities(options: TemporalOptions, status: str = "Running") -> list[str]:
    """As Temporal lists them, asked over a connection of the test's own."""
    client = await connect(options)
    query = f"ActivityType = '{ACTIVITY}' AND ExecutionStatus = '{status}'"
    return [one.activity_id async for one in client.list_activities(query)]


async def until_activities(options: TemporalOptions, expected: list[str], status: str = "Running") -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sorted(await activities(options, status)) != sorted(expected):
            await asyncio.sleep(0.05)


# -- a run and its activity


async def test_a_run_has_one_activity_that_bears_its_name_and_ends_with_it(
    store: str, log: str, witness: Witness, options: TemporalOptions
):
    async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=options)) as runtime:
        run = await runtime.start(stepper, f"{log} one")
        await witness.saw("begin one")
        await until_activities(options, [f"run:{run.id}"])

        let(log, "one")
        await run.result()

        await until_activities(options, [])
        await until_activities(options, [f"run:{run.id}"], "Completed")
        assert witness.words() == ["begin one", "end one"]


async def test_what_waits_for_a_free_slot_waits_in_temporal_and_is_ended_there_if_it_is_cancelled_meanwhile(
    store: str, log: str, witness: Witness, options: TemporalOptions
):
    async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=options), slots=1) as runtime:
        first = await runtime.start(stepper, f"{log} one")
        await witness.saw("begin one")
        second = await runtime.start(stepper, f"{log} two")
        await until_activities(options, [f"run:{first.id}", f"run:{second.id}"])

        await second.cancel()
        assert isinstance(runtime._engine, TemporalEngine)
        await runtime._engine.sweep()

        await until_activities(options, [f"run:{first.id}"])
        assert await second.status() is Status.CANCELLED
        assert witness.words() == ["begin one"]
        let(log, "one")
        await first.result()


async def test_a_run_that_waits_in_a_queue_which_nobody_polls_comes_into_one_that_is_polled(
    store: str, log: str, witness: Witness, options: TemporalOptions
):
    let(log, "one")
    client = await connect(options)
    async with await open_journal(store) as journal:
        created = RunCreated(id="c", at=time.time(), run="r1", agent="stepper", goal=f"{log} one", thread="t")
        await journal.create(created)
    await client.start_activity(
        ACTIVITY, "r1", id="run:r1", task_queue="of-old", start_to_close_timeout=timedelta(hours=1)
    )

    async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=options)) as runtime:
        await (await runtime.get("r1")).result()

    assert witness.words() == ["begin one", "end one"]
    await until_activities(options, ["run:r1"], "Terminated")


async def test_what_temporal_is_told_about_an_activity_is_no_verb(
    store: str, log: str, witness: Witness, options: TemporalOptions
):
    """Whoever ends an activity in Temporal ends no run: a person's verbs are in the journal."""
    soon = msgspec.structs.replace(options, heartbeat_seconds=0.5)
    async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=soon)) as runtime:
        client = await connect(options)
        for name in ("one", "two"):
            run = await runtime.start(stepper, f"{log} {name}")
            await witness.saw(f"begin {name}")
            activity = client.get_activity_handle(f"run:{run.id}")

            await (activity.cancel() if name == "one" else activity.terminate())
            await asyncio.sleep(1.0)  # two heartbeats, with which the worker is told
            let(log, name)

            await run.result()
        assert witness.words() == ["begin one", "end one", "begin two", "end two"]


async def test_a_run_goes_on_after_a_pause_in_an_activity_of_its_own(
    store: str, log: str, witness: Witness, options: TemporalOptions
):
    engine = partial(TemporalEngine, options=options)
    async with Runtime(store, agents=[stepper], slots=1, engine=engine) as runtime:
        first = await runtime.start(stepper, f"{log} one three")
        await witness.saw("begin one")
        pausing = asyncio.create_task(first.pause())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await first.status() is not Status.PAUSING:
                await asyncio.sleep(0.01)
        let(log, "one")
        await pausing
        await until_activities(options, [])
        second = await runtime.start(stepper, f"{log} two")
        await witness.saw("begin two")

        await first.resume(wait=0)
        await until_activities(options, [f"run:{first.id}", f"run:{second.id}"])
        let(log, "two")
        let(log, "three")

        await second.result()
        await first.result()
        steps = ["one", "two", "three"]
        assert witness.words() == [f"{word} {step}" for step in steps for word in ("begin", "end")]


# -- a server that is not there


async def test_a_server_that_is_not_reached_is_said_at_the_start(store: str, log: str):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        engine = partial(TemporalEngine, options=TemporalOptions(address=address))

        with pytest.raises(EngineUnavailable) as raised:
            async with Runtime(store, agents=[stepper], engine=engine):
                pass

    assert (raised.value.code, raised.value.message) == (
        "engine_unavailable",
        f"Temporal at {address} is not reached: Connection refused.",
    )
    assert raised.value.remedy


async def test_a_namespace_that_is_not_there_is_said_at_the_start(store: str, log: str, temporal: TemporalServer):
    engine = partial(TemporalEngine, options=TemporalOptions(address=temporal.address, namespace="nowhere"))

    with pytest.raises(
        EngineUnavailable, match=f"^Temporal at {temporal.address} has no namespace nowhere.$"
    ) as raised:
        async with Runtime(store, agents=[stepper], engine=engine):
            pass

    assert "temporal operator namespace create nowhere" in raised.value.remedy


async def test_without_the_sdk_it_is_said_what_to_install(
    store: str, log: str, monkeypatch: pytest.MonkeyPatch, options: TemporalOptions
):
    monkeypatch.delitem(sys.modules, "checkrein.engines.temporal_activities")
    monkeypatch.setitem(sys.modules, "temporalio", None)

    with pytest.raises(EngineUnavailable) as raised:
        async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=options)):
            pass

    assert "pip install 'checkrein[temporal]'" in raised.value.remedy


async def test_one_that_is_patient_waits_for_a_server_that_comes_later(
    store: str, log: str, witness: Witness, tmp_path: Path
):
    server = TemporalServer(tmp_path)
    options = TemporalOptions(address=server.address, namespace=server.new_namespace())
    let(log, "one")
    try:
        engine = partial(TemporalEngine, options=options, patient=True)
        async with Runtime(store, agents=[stepper], engine=engine) as runtime:
            run = await runtime.start(stepper, f"{log} one")
            await asyncio.to_thread(server.start)

            await run.result()
    finally:
        server.kill()
    assert witness.words() == ["begin one", "end one"]


async def test_a_worker_ends_in_order_while_temporal_is_frozen(store: str, log: str, witness: Witness, tmp_path: Path):
    server = TemporalServer(tmp_path)
    try:
        server.start()
        options = TemporalOptions(address=server.address, namespace=server.new_namespace())
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=options)) as runtime:
                run = await runtime.start(stepper, f"{log} one")
                await witness.saw("begin one")
                let(log, "one")
                server.freeze()
    finally:
        server.kill()
    async with Runtime(store, agents=[stepper]) as runtime:
        await (await runtime.get(run.id)).result()
    assert witness.words() == ["begin one", "end one"]


# -- TLS


async def test_a_server_is_asked_over_tls_and_shown_a_certificate(
    store: str, log: str, witness: Witness, options: TemporalOptions, temporal: TemporalServer, tmp_path: Path
):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    mine = ca.issue_cert("worker@checkrein.test")
    mine.private_key_pem.write_to_path(tmp_path / "key.pem")
    mine.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    let(log, "one")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", temporal.port)
        await asyncio.gather(_copy(reader, to_server[1]), _copy(to_server[0], writer), return_exceptions=True)

    proxy = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    async with proxy:
        secure = TemporalOptions(
            address=address,
            namespace=options.namespace,
            tls_ca=str(tmp_path / "ca.pem"),
            tls_cert=str(tmp_path / "cert.pem"),
            tls_key=str(tmp_path / "key.pem"),
        )
        async with Runtime(store, agents=[stepper], engine=partial(TemporalEngine, options=secure)) as runtime:
            await (await runtime.start(stepper, f"{log} one")).result()
        stranger = TemporalOptions(address=address, namespace=options.namespace, tls_ca=str(tmp_path / "ca.pem"))
        with pytest.raises(EngineUnavailable, match=f"Temporal at {address} "):
            await connect(stranger)
    with pytest.raises(EngineUnavailable, match=r"none.pem cannot be read: No such file"):
        await connect(TemporalOptions(address=address, tls_ca=str(tmp_path / "none.pem")))
    assert witness.words() == ["begin one", "end one"]


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
