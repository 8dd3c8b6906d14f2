"""Approvals over HTTP: what is shown, what is consented to, and what is executed are the same, to the last digit."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.server.serving import Client
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, note

pytestmark = pytest.mark.anyio

ACCOUNT = 40817810099910004312


@tool(effect="irreversible", changes="the money to {account}")
async def transfer(log: str, account: int, details: Any = None, body: str = "") -> int:
    """Send money."""
    note(log, f"{account} {details!r}")
    return account


def payer(witness: Witness, **given: Any) -> Agent:
    arguments = {"log": witness.log, "account": ACCOUNT, **given}
    turns = [Turn("I pay.", calls=[("transfer", arguments)]), Turn("Paid.")]
    return Agent("payer", model=ScriptedModel(turns), tools=[transfer])


async def asking(client: Client, runtime: Runtime, agent: Agent) -> tuple[str, dict[str, Any]]:
    """A run that waits for an approval, and the question."""
    runtime.add(agent)
    run = await client.start("payer")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (view := (await client.get(f"/api/runs/{run}"))[1])["approvals"]:
            await asyncio.sleep(0.02)
    return run, view["approvals"][0]


def texts(values: list[dict[str, Any]]) -> dict[str, str]:
    return {one["name"]: one["text"] for one in values}


async def test_what_is_shown_is_what_is_executed(client: Client, runtime: Runtime, witness: Witness) -> None:
    run, asked = await asking(client, runtime, payer(witness, details={"sums": [9007199254740993]}))

    shown = texts(asked["shown"])
    assert (shown["account"], shown["details"]) == (str(ACCOUNT), '{"sums":[9007199254740993]}')
    status, _ = await client.post(
        f"/api/runs/{run}/calls/{asked['call']}/approve", {"fingerprint": asked["fingerprint"]}
    )
    await client.until(run, "completed")

    assert status == 200
    assert witness.words() == [f"{ACCOUNT} {{'sums': [9007199254740993]}}"]
    _, call = await client.get(f"/api/runs/{run}/calls/{asked['call']}")
    assert (texts(call["given"])["account"], call["brought"]["text"]) == (str(ACCOUNT), str(ACCOUNT))


async def test_consent_to_something_else_than_was_shown_is_a_409(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    run, asked = await asking(client, runtime, payer(witness))

    status, told = await client.post(f"/api/runs/{run}/calls/{asked['call']}/approve", {"fingerprint": "another"})

    assert (status, told["code"]) == (409, "not_as_shown")
    assert witness.words() == []
    _, view = await client.get(f"/api/runs/{run}")
    assert [one["call"] for one in view["approvals"]] == [asked["call"]]
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_number_that_was_typed_instead_is_executed_to_the_last_digit(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    """Also one that no float can hold: the bytes of the request are what is recorded."""
    run, asked = await asking(client, runtime, payer(witness))
    body = b'{"arguments":{"account":100000000000000000001,"details":[1e400,-0.0]}}'

    status, told = await client.post(
        f"/api/runs/{run}/calls/{asked['call']}/approve", data=body, headers={"content-type": "application/json"}
    )
    await client.until(run, "completed")

    assert status == 200
    assert told["edited_by"] == "you"
    assert witness.words() == ["100000000000000000001 [inf, -0.0]"]
    _, call = await client.get(f"/api/runs/{run}/calls/{asked['call']}")
    assert (texts(call["given"])["account"], texts(call["asked_for"])["account"]) == (
        "100000000000000000001",
        str(ACCOUNT),
    )
    assert texts(call["given"])["details"] == "[1e400,-0.0]"


@pytest.mark.parametrize(
    ("account", "is_a"),
    [('"all of them"', "string"), ("9007199254740993.0", "number"), ("9" * 5000, "number")],
    ids=["text", "rounded", "endless"],
)
async def test_arguments_that_do_not_fit_are_a_409_that_says_why(
    client: Client, runtime: Runtime, witness: Witness, account: str, is_a: str
) -> None:
    run, asked = await asking(client, runtime, payer(witness))

    status, told = await client.post(
        f"/api/runs/{run}/calls/{asked['call']}/approve",
        data=f'{{"arguments": {{"account": {account}}}}}',
        headers={"content-type": "application/json"},
    )

    assert (status, told["code"]) == (409, "arguments_do_not_fit")
    assert f"account is {is_a}, not integer" in told["message"]
    await client.post(f"/api/runs/{run}/cancel")
    assert witness.words() == []


async def test_a_question_of_megabytes_is_short_in_the_view_and_whole_in_the_call(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    run, asked = await asking(client, runtime, payer(witness, body="x" * 2_000_000))

    _, view = await client.get(f"/api/runs/{run}")
    async with client.stream(f"/api/runs/{run}/live") as live:
        frame = await live.next()
    _, call = await client.get(f"/api/runs/{run}/calls/{asked['call']}")

    assert len(msgspec.json.encode(view)) < 50_000
    assert len(str(frame)) < 50_000
    shown = {one["name"]: one for one in asked["shown"]}
    assert shown["account"]["text"] == str(ACCOUNT)
    assert shown["body"]["hidden"] == 2_000_000 - len(shown["body"]["text"])
    assert len(texts(call["given"])["body"]) == 2_000_000
    await client.post(f"/api/runs/{run}/cancel")
