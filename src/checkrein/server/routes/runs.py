"""Runs: which there are, beginning one, and what one looks like.

Files that calls have published, for people to read.

Only what the store keeps of them, and only if its hash is the recorded one. No path that a run names is opened here: it
is one of the host where the call was made. It is sent as text that no browser takes for anything else, or to be kept.
"""

from __future__ import annotations

import hashlib
import os
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response

from checkrein.control.fork import ForkRun
from checkrein.control.view import CallView, RunView
from checkrein.control.worker_roster import AgentCard
from checkrein.core.enums import Status
from checkrein.errors import Forbidden, RequestRefused
from checkrein.journal.base import Journal, stream_of
from checkrein.server.auth.principals import Action, Principal, Role
from checkrein.server.context import ServerContext
from checkrein.server.errors import JSON, invalid, not_found
from checkrein.server.markdown import Renderer
from checkrein.server.openapi import errors, json_of, ref, takes
from checkrein.server.run_list import Listing, RunFilters, RunList
from checkrein.server.schemas import ForkBody, StartRun, body_of, json_answer
from checkrein.server.streaming.frames import RunFrames
from checkrein.server.streaming.live_view import encoded, is_ticking


async def kept_file(journal: Journal, run: str, view: CallView, number: int) -> bytes | None:
    """What the store keeps of a file, if it is what the record of the call's end speaks of."""
    wanted = view.file_hashes[number] if number < len(view.file_hashes) else ""
    body = await journal.file(run, stream_of(view.id, view.attempt), number) if wanted else None
    is_as_recorded = body is not None and hashlib.sha256(body).hexdigest() == wanted
    return body if is_as_recorded else None


def file_answer(body: bytes, path: str) -> Response:
    """A file in an answer: text to be shown, anything else to be kept."""
    name = quote(os.path.basename(path))
    try:
        body.decode()
    except UnicodeDecodeError:
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(body, media_type="application/octet-stream", headers=headers)
    return Response(body, media_type="text/plain; charset=utf-8")


_AGENTS = {
    "type": "object",
    "required": ["agents"],
    "properties": {"agents": {"type": "array", "items": ref(AgentCard)}},
}
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_EXAMPLE = {"agent": "churn", "goal": "Which customers will churn next quarter?"}


def routes(site: ServerContext) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["runs"])
    for add in (_add_agents, _add_list, _add_start, _add_fork, _add_run, _add_call, _add_file):
        add(router, site)
    return router


def _add_agents(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/agents",
        summary="The agents that a run can be started of",
        responses={200: json_of("Every agent.", _AGENTS), **errors(403)},
        response_class=Response,
    )
    async def agents(request: Request) -> Response:
        await site.principal(request)
        await site.backend.know_agents()
        return json_answer({"agents": tuple(site.backend.agents().values())})


def _add_list(router: APIRouter, site: ServerContext) -> None:
    listing = Listing(site.backend)

    @router.get(
        "/runs",
        summary="Runs, newest first",
        responses={200: json_of("A page of the list.", ref(RunList)), **errors(403, 404, 422)},
        response_class=Response,
    )
    async def runs(
        request: Request,
        status: Annotated[list[Status], Query(description="Only runs in one of these.")] = [],  # noqa: B006
        agent: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
        owner: Annotated[str | None, Query(max_length=200, description="Whose; of others, for operators.")] = None,
        thread: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
        root: Annotated[
            str | None, Query(min_length=1, max_length=200, description="Only what this run started itself.")
        ] = None,
        since: Annotated[str | None, Query(max_length=40, description=f"Begun then or later: {_TIME}")] = None,
        until: Annotated[str | None, Query(max_length=40, description=f"Begun before: {_TIME}")] = None,
        search: Annotated[
            str | None, Query(min_length=1, max_length=200, description="A part of the goal, or how the id begins.")
        ] = None,
        waiting: Annotated[bool, Query(description="Only runs that wait for a person.")] = False,
        before: Annotated[str | None, Query(max_length=200, description="The last id of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
    ) -> Response:
        principal = await site.principal(request)
        filters = RunFilters(
            status=status,
            agent=agent,
            owner=owner,
            thread=thread,
            root=root,
            since=_moment("since", since),
            until=_moment("until", until),
            search=search,
            waiting=waiting,
        )
        if before is not None:
            await site.facts(principal, before)
        page = await listing.page(principal, filters, before=before, limit=limit)
        return json_answer(page)


_TIME: Final = "a date, a time (`2026-11-16T09:30Z`; UTC where no zone is named) or Unix seconds."


def _moment(name: str, text: str | None) -> float | None:
    """A time as a person or a program writes it, in Unix seconds. Raises a 422 for what is none."""
    if text is None:
        return None
    try:
        if _SECONDS.fullmatch(text):
            return float(text)
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise invalid(f"{name}: write {_TIME}") from None


def _add_start(router: APIRouter, site: ServerContext) -> None:
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
        if not await site.backend.know_agents():
            raise _still_loading()
        known = site.backend.agents()
        if wanted.agent not in known and not getattr(site.backend, "is_alone", False):
            raise _no_agent(wanted.agent, tuple(known))
        if wanted.thread is not None and wanted.continues is not None:
            raise invalid("Give either thread or continues: a run that continues another is on the thread of that one.")
        await _check_thread(site, principal, wanted)
        run = await site.backend.start(wanted.asked_by(principal.name, principal.owner))
        return view_answer(site, await site.hub.feed(run), 201, {"Location": f"{_prefix(request)}/api/runs/{run}"})


def _add_fork(router: APIRouter, site: ServerContext) -> None:
    @router.post(
        "/runs/{run}/fork",
        status_code=201,
        summary="Start a run from a finished step of another",
        description="What was done up to there is taken over and not done again. The origin stays as it is, over or "
        "not, and what it did stays its own: the fork undoes none of it. `at` is a number of `steps`.",
        responses={201: json_of("The new run.", ref(RunView)), **errors(403, 404, 409, 422)},
        response_class=Response,
        openapi_extra=takes(ForkBody, {"at": 2, "instruction": "only the customers in Europe"}, required=True),
    )
    async def fork(request: Request, run: str) -> Response:
        seen = await site.see(request, run, Action.START)
        agent = seen.facts.agent
        wanted = await body_of(request, ForkBody)
        if not await site.backend.know_agents():
            raise _still_loading()
        known = site.backend.agents()
        if agent not in known and not getattr(site.backend, "is_alone", False):
            raise _no_agent(agent, tuple(known))
        made = await site.backend.fork(ForkRun(run=run, at=wanted.at, instruction=wanted.instruction, by=seen.by.name))
        return view_answer(site, await site.hub.feed(made), 201, {"Location": f"{_prefix(request)}/api/runs/{made}"})


def _add_run(router: APIRouter, site: ServerContext) -> None:
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


def _add_call(router: APIRouter, site: ServerContext) -> None:
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


def _add_file(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/runs/{run}/calls/{call}/files/{number}",
        summary="A file that a call has published",
        description="As plain text, or as a download where it is none. `number` counts from 0, in `files` of the call. "
        "The store keeps copies of up to 2 MiB; of a larger file the 404 says `host` and `path`.",
        responses={200: {"description": "The file.", "content": {"text/plain": {}}}, **errors(404)},
        response_class=Response,
    )
    async def file(request: Request, run: str, call: str, number: int) -> Response:
        await site.see(request, run)
        view = (await site.hub.feed(run)).viewer.call(call)
        if view is None or not 0 <= number < len(view.files):
            raise not_found("file_not_found", f"Call {call} has published no file {number}.", call=call)
        path = view.files[number]
        body = await kept_file(site.backend.journal, run, view, number)
        if body is None:
            raise _not_kept(view, path)
        return file_answer(body, path)


def _not_kept(view: CallView, path: str) -> Exception:
    where = f"on {view.host or 'the host where the call was made'}: {path}"
    told = f"The store keeps no copy of this file, because it is large, or old, or could not be kept. It is {where}."
    return not_found("file_not_kept", told, call=view.id, host=view.host, path=path)


async def _check_thread(site: ServerContext, principal: Principal, wanted: StartRun) -> None:
    """A run goes on only from one that its maker may see. A thread needs no check: everybody has names of their own."""
    if wanted.continues is not None:
        await site.facts(principal, wanted.continues)
    elif wanted.thread is not None and not principal.owner and principal.role is not Role.OPERATOR:
        raise Forbidden("A thread belongs to an owner, and this token has none; start the run without a thread.")


def _no_agent(name: str, known: tuple[str, ...]) -> Exception:
    there_are = ", ".join(known) or "none"
    told = f"There is no agent {name} here; there are: {there_are}."
    return RequestRefused(told, code="unknown_agent", status=422, agent=name, known=known)


def _still_loading() -> Exception:
    told = "The agents are still being loaded, so no run can be started yet; everything else works. Try again later."
    return RequestRefused(told, code="agents_loading", status=503)


def _prefix(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def view_answer(
    site: ServerContext, feed: RunFrames, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    at = site.backend.now()
    view = feed.viewer.view(at)
    fields: dict[str, Any] = {name: msgspec.Raw(encoded(name, getattr(view, name))) for name in view.__struct_fields__}
    body = msgspec.json.encode({**fields, "ticking": is_ticking(feed.viewer), "at": at})
    return Response(body, status, media_type=JSON, headers=headers)


_MARKDOWN: Final = Renderer()
"""One for the whole process: rendering keeps it from everything else."""


async def call_answer(feed: RunFrames, call: str) -> Response:
    view = feed.viewer.call(call)
    if view is None:
        raise not_found("call_not_found", f"Run {feed.run} has no call {call}.", call=call)
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    html = await _MARKDOWN.render(view.text)
    return Response(msgspec.json.encode({**fields, "html": html}), media_type=JSON)
