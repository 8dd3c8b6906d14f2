"""The description of the API is true, and whatever fits it, or nearly does, is never answered with a 5xx."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance

from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.server.serving import app_over, app_over_backend
from tests.server.test_stream import Paper
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences

WORDS = sentences(400)


class Served:
    """A server in a thread of its own, with a run at work, one that has ended, and one that waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.base = ""
        self.runs: list[str] = []

    async def _serve(self) -> None:
        talker = Agent("talker", model=ScriptedModel(lambda _: Turn(WORDS), tokens_per_second=20))
        quick = Agent("quick", model=ScriptedModel(lambda _: Turn("Done.")))
        async with Runtime(f"sqlite:///{self._folder}/runs.db", agents=[talker, quick]) as runtime:
            app = app_over(runtime)
            self._server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
            serving = asyncio.create_task(self._server.serve())
            while not self._server.started:
                await asyncio.sleep(0.01)
            self.base = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}"
            done = await runtime.start(quick, "go")
            await done.result()
            self.runs = [done.id, (await runtime.start(talker, "go")).id]
            self._ready.set()
            while not self._server.should_exit:
                await asyncio.sleep(0.05)
            await app.state.hub.close()
            await serving

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("openapi")) as opened:
        yield opened


@pytest.fixture(scope="module")
def described(served: Served) -> Any:
    """What the server says of itself, read once."""
    return schemathesis.openapi.from_url(f"{served.base}/api/openapi.json")


@cache
def describe() -> dict[str, Any]:
    return dict(app_over_backend(Paper()).openapi())


STREAMS = ("/events", "/live")


def operations() -> list[tuple[str, str]]:
    return [(path, method) for path, found in describe()["paths"].items() for method in found]


@pytest.mark.parametrize(("path", "method"), operations())
def test_every_route_is_described(path: str, method: str) -> None:
    told = describe()["paths"][path][method]

    assert told["summary"]
    assert any(code.startswith("2") for code in told["responses"])
    if path.startswith("/api/"):
        assert {"401", "503"} <= told["responses"].keys()
    if "{run}" in path:
        assert "404" in told["responses"]
    for response in told["responses"].values():
        assert response["description"]
    if method == "post" and path.startswith("/api/"):
        content = told["requestBody"]["content"]["application/json"]
        assert content["schema"]
        assert "example" in content


def test_every_schema_that_is_named_is_there() -> None:
    text = describe()
    schemas = text["components"]["schemas"]

    def named(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            for one in value.values():
                yield from named(one)
        elif isinstance(value, list):
            for one in value:
                yield from named(one)

    assert {ref.removeprefix("#/components/schemas/") for ref in named(text)} <= schemas.keys()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["fitting", "not fitting"])
@pytest.mark.parametrize(("path", "method"), [one for one in operations() if not one[0].endswith(STREAMS)])
def test_nothing_that_is_sent_to_it_is_answered_with_a_5xx(
    served: Served, described: Any, path: str, method: str, mode: GenerationMode
) -> None:
    """And what is answered fits the description."""
    operation = described[path][method]
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Unsatisfiable:
        return
    runs = cycle([*served.runs, None])

    @settings(max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def check(case: Any) -> None:
        run = next(runs)
        if run is not None and "run" in (case.path_parameters or {}):
            case.path_parameters["run"] = run
        if run is not None and "call" in (case.path_parameters or {}):
            case.path_parameters["call"] = "c1"
        if isinstance(case.body, dict):
            if path == "/api/runs" and run is not None and isinstance(case.body.get("agent"), str):
                case.body["agent"] = "quick"
            if isinstance(case.body.get("wait"), int | float):
                case.body["wait"] = min(case.body["wait"], 0.05)
            if path == "/api/halt" and case.body.get("scope") == "all":
                case.body["scope"] = "agent"  # the others are still to be tested
        response = case.call(base_url=served.base, timeout=PATIENCE_SECONDS)
        case.validate_response(response, checks=[not_a_server_error, response_schema_conformance])
        if response.status_code >= 400:
            assert {"code", "message"} <= response.json().keys()

    with suppress(Unsatisfiable):  # nothing can be wrong about a request without parameters
        check()


@pytest.mark.parametrize("end", STREAMS)
def test_no_cursor_makes_a_stream_answer_with_a_5xx(served: Served, described: Any, end: str) -> None:
    operation = described[f"/api/runs/{{run}}{end}"]["get"]

    @settings(max_examples=15, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def check(case: Any) -> None:
        case.path_parameters["run"] = served.runs[1]
        made = case.as_transport_kwargs(base_url=served.base)
        with requests.request(**made, stream=True, timeout=PATIENCE_SECONDS) as response:
            assert response.status_code < 500

    with suppress(Unsatisfiable):
        check()
