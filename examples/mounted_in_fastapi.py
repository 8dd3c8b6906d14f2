"""The API and the page inside an application that has users of its own.

    uvicorn examples.mounted_in_fastapi:app --timeout-graceful-shutdown 3

Then open http://127.0.0.1:8000/agents/: it sends you to the application's login, and you come back as ada. (An open
page is a stream that does not end by itself: without a time to wait for it, uvicorn would not end either.)

The application decides who somebody is; yours has a real login. Checkrein decides what they may do: everybody sees and
steers their own runs, and nobody else's. Whoever logs out is cut off from open pages within seconds.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse

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
        else Turn(" ".join(f"In month {month} Ada Ltd paid on time." for month in range(1, 25)))
    ),
    tokens_per_second=25,
)
AGENT = Agent("helper", model=MODEL, tools=[look_up])  # a real one: model="openai:gpt-5"

runtime = Runtime(os.environ.get("STORE", "sqlite:///.checkrein/runs.db"), agents=[AGENT])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with runtime:
        yield


LOGGED_IN: dict[str, str] = {}  # which cookie is whose; yours is in a database


def user_of(request: Request) -> str | None:
    return LOGGED_IN.get(request.cookies.get("login", ""))


def who(request: Request) -> Principal | None:
    """Whoever is logged in, by the application's own means."""
    user = user_of(request)
    return None if user is None else Principal(name=user, role=Role.CONTROLLER, owner=user)


app = FastAPI(lifespan=lifespan)
app.mount("/agents", checkrein.asgi(runtime, authorize=who, login_url="/login"))


@app.get("/login")
async def log_in(user: str = "ada", next: str = "/agents/") -> RedirectResponse:
    """Yours asks for a password."""
    login = secrets.token_urlsafe()
    LOGGED_IN[login] = user
    answer = RedirectResponse(next if next.startswith("/agents/") else "/agents/", 303)
    answer.set_cookie("login", login, httponly=True, samesite="lax")
    return answer


@app.get("/logout")
async def log_out(request: Request) -> dict[str, str]:
    LOGGED_IN.pop(request.cookies.get("login", ""), None)
    return {"you": "are logged out"}


@app.post("/orders/{order}/check")
async def check(order: str, request: Request) -> dict[str, str]:
    """A route of the application itself begins a run; its owner stops it on the page."""
    run = await runtime.start(AGENT, f"Check order {order}.", owner=user_of(request) or "")
    return {"run": run.id}
