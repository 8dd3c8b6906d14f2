"""The API and the page inside an application that has users of its own.

    uvicorn examples.mounted_in_fastapi:app --timeout-graceful-shutdown 3

Then open http://127.0.0.1:8000/agents/. (An open page is a stream that does not end by itself: without a time to wait
for it, uvicorn would not end either.)

The application decides who somebody is (here by a header that a proxy would set; yours has a login). Checkrein decides
what they may do: everybody sees and steers their own runs, and nobody else's.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request

import checkrein
from checkrein import Agent, Principal, Role, Runtime, tool
from checkrein.models import ScriptedModel, Turn


@tool(effect="none")
async def look_up(customer: str) -> str:
    """Look a customer up."""
    return f"{customer} pays on time."


MODEL = ScriptedModel(
    lambda request: (
        Turn("I look it up. ", calls=[("look_up", {"customer": "Ada Ltd"})])
        if len(request.messages) == 1
        else Turn("Ada Ltd pays on time; I would not worry about them. " * 20)
    ),
    tokens_per_second=25,
)
AGENT = Agent("helper", model=MODEL, tools=[look_up])  # a real one: model="openai:gpt-5"

runtime = Runtime(os.environ.get("STORE", "sqlite:///.checkrein/runs.db"), agents=[AGENT])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with runtime:
        yield


def who(request: Request) -> Principal | None:
    """Whoever is logged in, by the application's own means."""
    user = request.headers.get("x-user")
    return None if user is None else Principal(name=user, role=Role.CONTROLLER, owner=user)


app = FastAPI(lifespan=lifespan)
app.mount("/agents", checkrein.asgi(runtime, authorize=who))


@app.post("/orders/{order}/check")
async def check(order: str, request: Request) -> dict[str, str]:
    """A route of the application itself begins a run; its owner stops it on the page."""
    run = await runtime.start(AGENT, f"Check order {order}.", owner=request.headers.get("x-user", ""))
    return {"run": run.id}
