"""Receivers are told what runs need a person for: once, signed, across restarts, and without holding up anybody."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from checkrein import Agent, Runtime
from checkrein.errors import WrongInput
from checkrein.models import ScriptedModel, Turn
from checkrein.server import webhooks
from checkrein.server.delivery_log import open_delivery_log
from checkrein.server.webhooks import Notifier, On, Receiver, moments, needs, receiver, signing_key
from tests.support.agent_tools import wire_money
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef0123456789abcdef"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "notifications.md"


class Heard(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Loopback:
    """A receiver on this machine. It answers what `answers` says, one after the other, and then 204."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.heard: list[Heard] = []
        self.speaks = asyncio.Event()
        self.speaks.set()

    async def __aenter__(self) -> Loopback:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook/secret-path"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.speaks.set()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:] if line)
        }
        self.heard.append(Heard(headers, await reader.readexactly(int(headers["content-length"]))))
        await self.speaks.wait()
        status = self.answers.pop(0) if self.answers else 204
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def loopback(anyio_backend: str) -> AsyncIterator[Loopback]:
    async with Loopback() as opened:
        yield opened


Open = Callable[..., Any]


@pytest.fixture
def notifier(runtime: Runtime, loopback: Loopback, tmp_path: Path) -> Open:
    """Opens a notifier of `runtime` that tells `loopback`."""

    @asynccontextmanager
    async def opened(*also: Receiver, **options: Any) -> AsyncIterator[Notifier]:
        receivers = [receiver(loopback.url), *also]
        key = signing_key({webhooks.SECRET_VARIABLE: SECRET}, receivers)
        options = {
            "store": f"sqlite:///{tmp_path}/runs.db",
            "base_url": "http://here:8420",
            "first_pause": 0.01,
            **options,
        }
        async with Notifier(runtime.journal, receivers, key, **options) as made:
            yield made

    return opened


def payer(witness: Witness) -> Agent:
    turns = [Turn("I pay.", calls=[("wire_money", {"log": witness.log})]), Turn("Paid.")]
    return Agent("payer", model=ScriptedModel(turns), tools=[wire_money])


def quick() -> Agent:
    return Agent("quick", model=ScriptedModel(lambda _: Turn("Done.")))


async def waiting(runtime: Runtime, witness: Witness, goal: str = "pay the invoice") -> Any:
    run = (
        await runtime.start(payer(witness), goal)
        if "payer" not in runtime.agents
        else await runtime.start("payer", goal)
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await run.state()).waiting():
            await asyncio.sleep(0.01)
    return run


async def test_a_run_that_begins_to_wait_is_told_of_once_and_says_what_it_needs(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    async with notifier():
        run = await waiting(runtime, witness)
        await until(lambda: loopback.heard)
        (call,) = (await run.state()).approvals
        await run.approve(call)
        await run.result()
        other = await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) > 1)

    told = [one.json for one in loopback.heard]
    assert [one["run"] for one in told] == [run.id, other.id]
    assert told[0]["type"] == "run.waiting"
    assert told[0]["waiting"] == {"kind": "approval", "what": "approve wire_money", "call": call}
    assert told[0]["text"] == f"Run {run.id} of payer waits for you: approve wire_money."
    assert told[0]["url"] == f"http://here:8420/runs/{run.id}"
    assert str(witness.log) not in loopback.heard[0].body.decode(), "no arguments"


async def test_the_signature_is_what_the_page_of_the_docs_checks(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown: dict[str, Any] = {}
    exec(code, shown)
    async with notifier():
        await waiting(runtime, witness)
        await until(lambda: loopback.heard)
    (heard,) = loopback.heard

    assert shown["is_genuine"](SECRET, heard.headers, heard.body)
    assert not shown["is_genuine"](SECRET, heard.headers, heard.body + b" ")
    assert not shown["is_genuine"]("another secret", heard.headers, heard.body)
    assert not shown["is_genuine"](SECRET, {**heard.headers, "webhook-timestamp": "1"}, heard.body)
    assert heard.headers["webhook-id"] == heard.json["id"]


async def test_what_waits_already_is_told_at_the_start_and_not_again_at_the_next(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    first = await waiting(runtime, witness)

    async with notifier():
        await until(lambda: loopback.heard)
    async with notifier():
        second = await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) > 1)

    assert [one.json["run"] for one in loopback.heard] == [first.id, second.id]


async def test_who_has_been_told_when_the_server_ends_is_not_told_again(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "LAST_SECONDS", PATIENCE_SECONDS)
    loopback.speaks.clear()
    first = await waiting(runtime, witness)

    async with notifier():
        await until(lambda: loopback.heard)
        asyncio.get_running_loop().call_later(0.1, loopback.speaks.set)
    async with notifier():
        second = await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) > 1)

    assert [one.json["run"] for one in loopback.heard] == [first.id, second.id]


async def test_a_receiver_that_is_away_for_a_while_is_told_with_the_same_id(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    loopback.answers = [500, 429]
    async with notifier():
        await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) == 3)

    assert len({one.headers["webhook-id"] for one in loopback.heard}) == 1


async def test_what_was_not_delivered_before_a_restart_is_delivered_after_it(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    loopback.answers = [503] * 100
    async with notifier(first_pause=3600.0):
        run = await waiting(runtime, witness)
        await until(lambda: loopback.heard)
    loopback.answers = []
    async with notifier():
        await until(lambda: len(loopback.heard) == 2)

    assert [one.json["run"] for one in loopback.heard] == [run.id, run.id]


async def test_of_two_servers_one_tells(runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness) -> None:
    async with notifier(), notifier():
        first, second = await waiting(runtime, witness), await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) > 1)

    assert sorted(one.json["run"] for one in loopback.heard) == sorted([first.id, second.id])


async def test_what_a_server_died_over_another_tells(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness, tmp_path: Path
) -> None:
    run = await waiting(runtime, witness)
    ((id, _),) = needs(await run.state())
    log, now = await open_delivery_log(f"sqlite:///{tmp_path}/runs.db", runtime.journal), time.time()
    await log.claim(receiver(loopback.url).key, id, "dead", until=now + 2.0, now=now)
    await log.close()

    async with notifier():
        await until(lambda: loopback.heard)

    assert time.time() >= now + 2.0
    assert [one.json["run"] for one in loopback.heard] == [run.id]


async def test_a_receiver_that_refuses_for_good_is_not_asked_again(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    loopback.answers = [404]
    async with notifier():
        await waiting(runtime, witness)
        await until(lambda: "HTTP 404" in caplog.text)
        await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) == 2)

    assert len({one.json["run"] for one in loopback.heard}) == 2
    assert "secret-path" not in caplog.text, "an address may be a secret"


async def test_what_was_answered_meanwhile_is_not_told_any_more(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    loopback.answers = [500]
    loopback.speaks.clear()
    async with notifier() as telling:
        run = await waiting(runtime, witness)
        await until(lambda: loopback.heard)
        (call,) = (await run.state()).approvals
        await run.deny(call)
        await run.result()
        other = await waiting(runtime, witness)
        await until(lambda: len(loopback.heard) > 1)
        loopback.speaks.set()  # only now does the first one hear that it was not taken
        await until(lambda: len(telling._tasks) == 1)  # who looks for more; nobody is being told any more

    assert [one.json["run"] for one in loopback.heard] == [run.id, other.id]


async def test_ends_are_told_if_that_is_asked_for_and_those_that_came_before_are_not(
    runtime: Runtime, loopback: Loopback, notifier: Open
) -> None:
    runtime.add(quick())
    before = await runtime.start("quick", "before")
    await before.result()
    async with notifier(on={On.ENDED}):
        during = await runtime.start("quick", "during")
        await during.result()
        await before.add_reason("late")
        await until(lambda: loopback.heard)
    between = await runtime.start("quick", "between")
    await between.result()
    async with notifier(on={On.ENDED}):
        await until(lambda: len(loopback.heard) > 1)

    told = [one.json for one in loopback.heard]
    assert [(one["run"], one["type"], one["status"]) for one in told] == [
        (during.id, "run.ended", "completed"),
        (between.id, "run.ended", "completed"),
    ]


async def test_slack_gets_a_text_in_which_nothing_is_a_command_of_slack(
    runtime: Runtime, notifier: Open, witness: Witness
) -> None:
    async with Loopback() as slack, notifier(receiver(f"slack:{slack.url}")):
        run = await waiting(runtime, witness, goal="<!channel> pay & go")
        await until(lambda: slack.heard)

    assert slack.heard[0].json == {
        "text": f"Run {run.id} of payer waits for you: approve wire_money.\n“&lt;!channel&gt; pay &amp; go”\n"
        f"http://here:8420/runs/{run.id}"
    }
    assert "webhook-signature" not in slack.heard[0].headers


async def test_a_receiver_that_never_answers_holds_up_neither_runs_nor_another_receiver(
    runtime: Runtime, loopback: Loopback, notifier: Open, witness: Witness
) -> None:
    loopback.speaks.clear()
    async with Loopback() as other, notifier(receiver(other.url)):
        for number in range(6):
            await waiting(runtime, witness, goal=f"run {number}")
        await until(lambda: len(other.heard) == 6)

    assert len(loopback.heard) <= webhooks.AT_ONCE


# -- what is given on the command line


@pytest.mark.parametrize("text", ["ftp://x", "nowhere", "http://", "slack:", "slack:hook", "http://x:99999/"])
def test_an_address_that_is_none_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(WrongInput, match="--notify takes an address") as wrong:
        receiver(text)

    assert wrong.value.code == "notify_address"


def test_an_address_of_slack_is_known_and_never_shown() -> None:
    one = receiver("https://hooks.slack.com/services/T0/B0/xyz")

    assert one.is_slack
    assert repr(one) == "<Receiver hooks.slack.com>"


def test_a_webhook_needs_a_secret_and_slack_needs_none() -> None:
    plain, slack = receiver("http://x.test"), receiver("slack:http://x.test")

    assert signing_key({}, [slack]) == b""
    assert signing_key({webhooks.SECRET_VARIABLE: "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="}, [plain]) == b"0123456789abcdef"
    for secret in ("", "short", "whsec_this is no base64!"):
        with pytest.raises(WrongInput) as wrong:
            signing_key({webhooks.SECRET_VARIABLE: secret}, [plain, slack])
        assert wrong.value.code == "notify_secret"
        assert not secret or secret not in wrong.value.message


def test_when_it_is_told_is_said_in_two_words() -> None:
    assert moments("waiting, ended") == {On.WAITING, On.ENDED}
    with pytest.raises(WrongInput, match="waiting, ended, or waiting,ended") as wrong:
        moments("always")
    assert wrong.value.code == "notify_on"
