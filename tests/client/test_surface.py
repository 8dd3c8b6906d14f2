"""The client has the whole API: every verb with its parameters, and every operation that the description names."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec
import pytest

from checkrein.client import AsyncClient, AsyncRunHandle, Client, RunHandle
from checkrein.client.async_client import RunFilters
from checkrein.client.transport import Request, Transport
from checkrein.core.verb_specs import SPECS, ExpectedSeq, VerbSpec
from tests.golden.surface import openapi as described_api

each_verb = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())

OF_BROWSERS = {("POST", "/session"), ("DELETE", "/session"), ("GET", "/enter")}
"""A program has a token and needs no session."""


def openapi() -> Any:
    return msgspec.json.decode(described_api())


def methods(kind: type) -> dict[str, inspect.Signature]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(one) for name, one in found if not name.startswith("_")}


def expected(spec: VerbSpec) -> list[tuple[str, bool, Any]]:
    """Name, whether it is given by position, and default of each parameter."""
    own = [(one.name, one.by_position, inspect.Parameter.empty if one.is_required else one.default)
           for one in spec.parameters]  # fmt: skip
    if spec.has_request_id:
        own.append(("request_id", False, ""))
    if spec.expected_seq is ExpectedSeq.CHECKED:
        own.append(("expected_seq", False, None))
    if spec.wait is not None:
        own.append(("wait", False, spec.wait.program))
    return own


@each_verb
@pytest.mark.parametrize("kinds", [(AsyncRunHandle, AsyncClient), (RunHandle, Client)], ids=["async", "sync"])
def test_every_verb_takes_what_its_description_says(spec: VerbSpec, kinds: tuple[type, type]) -> None:
    signature = methods(kinds[1] if spec.target == "scope" else kinds[0])[spec.name]
    parameters = list(signature.parameters.values())[1:]
    if spec.target == "call":
        assert parameters.pop(0).name == spec.call_name

    found = [(one.name, one.kind is not inspect.Parameter.KEYWORD_ONLY, one.default) for one in parameters]

    assert found == expected(spec)


@pytest.mark.parametrize(("plain", "other"), [(RunHandle, AsyncRunHandle), (Client, AsyncClient)])
def test_the_synchronous_twin_has_the_same_methods_with_the_same_parameters(plain: type, other: type) -> None:
    renamed = {"aclose": "close"}
    twins = {renamed.get(name, name): one.parameters for name, one in methods(other).items()}
    of_its_own = {"ask", "read"} if other is AsyncClient else set()

    assert {name: one.parameters for name, one in methods(plain).items()} == {
        name: parameters for name, parameters in twins.items() if name not in of_its_own
    }


class Asked(Exception):
    pass


class Listener(Transport):
    """A transport that writes down what it is asked for, and does not ask anybody."""

    def __init__(self) -> None:
        super().__init__("http://nowhere.test", "", {}, timeout=1, retries=0)
        self.heard: set[tuple[str, str]] = set()

    async def ask(self, request: Request) -> NoReturn:
        self.heard.add((request.method, request.path))
        raise Asked

    async def open(self, request: Request, headers: Any = None) -> NoReturn:
        await self.ask(request)


def dummy(parameter: inspect.Parameter) -> Any:
    values = {"call": "{call}", "effect": "{call}", "number": "{number}", "run": "{run}", "answer": "happened"}
    return values.get(parameter.name, "{token_id}" if parameter.name == "token_id" else "x")


async def asked_of(target: Any, name: str) -> None:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = [one for one in inspect.signature(getattr(target, name)).parameters.values()
              if one.default is inspect.Parameter.empty and one.kind in kinds]  # fmt: skip
    made = getattr(target, name)(**{one.name: dummy(one) for one in needed})
    with suppress(Asked):
        if inspect.isasyncgen(made):
            await anext(made)
        elif inspect.isawaitable(made):
            await made


@pytest.mark.anyio
async def test_the_client_asks_for_every_operation_of_the_api_and_for_nothing_else() -> None:
    client = AsyncClient("http://nowhere.test", "")
    client.transport = listener = Listener()

    for name in methods(AsyncClient).keys() - {"verb", "ask", "read", "aclose"}:
        await asked_of(client, name)
    for name in methods(AsyncRunHandle):
        await asked_of(client.run("{run}"), name)

    described = {
        (method.upper(), path) for path, operations in openapi()["paths"].items() for method in operations
    } - OF_BROWSERS
    assert {(method, unquote(path)) for method, path in listener.heard} == described


def test_the_filters_of_the_list_are_those_that_the_server_takes() -> None:
    taken = {one["name"] for one in openapi()["paths"]["/api/runs"]["get"]["parameters"]}

    assert set(RunFilters.__annotations__) == taken
