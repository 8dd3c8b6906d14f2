"""Runs: which there are, beginning one, and what one looks like."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from checkrein.control.view import CallView, RunView
from checkrein.core.words import Status
from checkrein.errors import Forbidden
from checkrein.server.auth.principals import Action, Principal
from checkrein.server.backend import AgentCard
from checkrein.server.bodies import StartRun, body_of, json_answer
from checkrein.server.errors import JSON, invalid, not_found
from checkrein.server.feed import Feed
from checkrein.server.files import file_answer, published
from checkrein.server.listing import Listing, RunList
from checkrein.server.live import encoded, is_ticking
from checkrein.server.markdown import render
from checkrein.server.routes.docs import errors, json_of, ref, takes
from checkrein.server.site import Site

_AGENTS = {
    "type": "object",
    "required": ["agents"],
    "properties": {"agents": {"type": "array", "items": ref(AgentCard)}},
}
_EXAMPLE = {"agent": "churn", "goal": "Which customers will churn next quarter?"}


def routes(site: Site) -> APIRouter:
    router, listing = APIRouter(prefix="/api", tags=["runs"]), Listing(site.backend)

    @router.get(
        "/agents",
        summary="The agents that a run can be started of",
        responses={200: json_of("Every agent.", _AGENTS), **errors(403)},
        response_class=Response,
    )
    async def agents(request: Request) -> Response:
        await site.principal(request)
        return json_answer({"agents": tuple(site.backend.agents().values())})

    @router.get(
        "/runs",
        summary="Runs, newest first",
        responses={200: json_of("A page of the list.", ref(RunList)), **errors(403, 404, 422)},
        response_class=Response,
    )
    async def runs(
        request: Request,
        status: Annotated[list[Status], Query(description="Only runs in one of these.")] = [],  # noqa: B006
        agent: Annotated[str | None, Query(max_length=200)] = None,
        thread: Annotated[str | None, Query(max_length=200)] = None,
        root: Annotated[str | None, Query(max_length=200, description="Only what this run started itself.")] = None,
        waiting: Annotated[bool, Query(description="Only runs that wait for a person.")] = False,
        before: Annotated[str | None, Query(max_length=200, description="The last id of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> Response:
        principal = await site.principal(request)
        if before is not None:
            await site.facts(principal, before)
        page = await listing.page(
            principal,
            status=status,
            agent=agent,
            thread=thread,
            root=root,
            waiting=waiting,
            before=before,
            limit=limit,
        )
        return json_answer(page)

    @router.post(
        "/runs",
        status_code=201,
        summary="Start a run",
        description="On a thread with a live run it is queued behind it, redirects it, or is refused (`if_busy`). "
        "`continues` names a run that has ended: the new one goes on from there, on the same thread.",
        responses={201: json_of("The run.", ref(RunView)), **errors(403, 404, 409, 422)},
        response_class=Response,
        openapi_extra=takes(StartRun, _EXAMPLE, required=True),
    )
    async def start(request: Request) -> Response:
        principal = await site.principal(request, Action.START)
        wanted = await body_of(request, StartRun)
        known = site.backend.agents()
        if wanted.agent not in known:
            raise _no_agent(wanted.agent, tuple(known))
        if wanted.thread is not None and wanted.continues is not None:
            raise invalid("Give either thread or continues: a run that continues another is on the thread of that one.")
        await _check_thread(site, principal, wanted)
        run = await site.backend.start(
            wanted.agent,
            wanted.goal,
            thread=wanted.thread,
            continues=wanted.continues,
            owner=principal.owner,
            if_busy=wanted.if_busy,
            by=principal.name,
        )
        return view_answer(site, await site.hub.feed(run), 201, {"Location": f"{_prefix(request)}/api/runs/{run}"})

    @router.get(
        "/runs/{run}",
        summary="One run as it looks now",
        description="With `ticking`, whether its elapsed time is counting, and `at`, the server's time.",
        responses={200: json_of("The run.", ref(RunView)), **errors(404)},
        response_class=Response,
    )
    async def one(request: Request, run: str) -> Response:
        await site.see(request, run)
        return view_answer(site, await site.hub.feed(run))

    @router.get(
        "/runs/{run}/calls/{call}",
        summary="One call, whole",
        description="With `html`: its text as Markdown that was rendered safely.",
        responses={200: json_of("The call.", ref(CallView)), **errors(404)},
        response_class=Response,
    )
    async def call(request: Request, run: str, call: str) -> Response:
        await site.see(request, run)
        return await call_answer(await site.hub.feed(run), call)

    @router.get(
        "/runs/{run}/calls/{call}/files/{number}",
        summary="A file that a call has published",
        description="As plain text, or as a download where it is none. `number` counts from 0, in `files` of the call.",
        responses={200: {"description": "The file.", "content": {"text/plain": {}}}, **errors(404)},
        response_class=Response,
    )
    async def file(request: Request, run: str, call: str, number: int) -> Response:
        await site.see(request, run)
        view = (await site.hub.feed(run)).viewer.call(call)
        path = None if view is None or not 0 <= number < len(view.files) else view.files[number]
        body = None if path is None else await asyncio.to_thread(published, path)
        if path is None or body is None:
            raise not_found("file_not_found", f"File {number} of call {call} is not there, or not any more.", call=call)
        return file_answer(body, path)

    return router


async def _check_thread(site: Site, principal: Principal, wanted: StartRun) -> None:
    """A new run reads what its thread has said so far: only those may begin one who may see all of it."""
    if wanted.continues is not None:
        facts = await site.facts(principal, wanted.continues)
        threads = facts.thread
    elif wanted.thread is not None:
        threads = wanted.thread
    else:
        return
    before: str | None = None
    while rows := await site.backend.journal.runs(thread=threads, limit=200, before=before):
        if not all(principal.may_see(row.owner, row.id, row.root) for row in rows):
            raise Forbidden(f"Thread {threads} has runs of somebody else; begin a thread of your own.")
        before = rows[-1].id


def _no_agent(name: str, known: tuple[str, ...]) -> Exception:
    there_are = ", ".join(known) or "none"
    error = invalid(f"There is no agent {name} here; there are: {there_are}.")
    error.__dict__.update(code="unknown_agent", agent=name, known=known)
    return error


def _prefix(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def view_answer(site: Site, feed: Feed, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    at = site.backend.now()
    view = feed.viewer.view(at)
    fields: dict[str, Any] = {name: msgspec.Raw(encoded(name, getattr(view, name))) for name in view.__struct_fields__}
    body = msgspec.json.encode({**fields, "ticking": is_ticking(feed.viewer), "at": at})
    return Response(body, status, media_type=JSON, headers=headers)


async def call_answer(feed: Feed, call: str) -> Response:
    view = feed.viewer.call(call)
    if view is None:
        raise not_found("call_not_found", f"Run {feed.run} has no call {call}.", call=call)
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    html = await asyncio.to_thread(render, view.text)  # a long text must not hold up a verb
    return Response(msgspec.json.encode({**fields, "html": html}), media_type=JSON)
