"""Streams: every event of a run, or the run as the page watches it."""

from __future__ import annotations

import logging
import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from checkrein.server.context import AuthorisedRun, ServerContext
from checkrein.server.errors import answer, invalid
from checkrein.server.openapi import errors, stream_of
from checkrein.server.streaming.rate_limit import Admission

_log = logging.getLogger(__name__)

_SEQ_MOST = 2**53
_NUMBER = re.compile("[0-9]{1,16}")


def routes(site: ServerContext, admission: Admission) -> APIRouter:
    router = APIRouter(prefix="/api/runs/{run}", tags=["streams"])
    _add_events(router, site, admission)
    _add_live(router, site, admission)
    return router


def _add_events(router: APIRouter, site: ServerContext, admission: Admission) -> None:
    @router.get(
        "/events",
        summary="Every event, as it happens",
        description="Server-sent events. `id` is the event's seq, `data` its stored bytes with `seq` and `run`. Begins "
        "after `Last-Event-ID` or `?after=`, at the beginning without either, and ends after `run.finished`, once "
        "nothing is being undone any more. Between them `call.chunk {call, attempt, offset, text}`, without an id: "
        "the text of calls in flight is sent again from its start to whoever reconnects. A reader that goes away "
        "stops nothing; one that is too slow is disconnected and goes on from its cursor.",
        responses={
            200: stream_of("The stream."),
            204: {"description": "The run is over, and its reader has had everything."},
            **errors(404, 422, 429),
        },
        response_class=Response,
    )
    async def events(
        request: Request,
        run: str,
        after: Annotated[int | None, Query(ge=0, le=_SEQ_MOST, description="The seq of the last event read.")] = None,
        last_event_id: Annotated[str | None, Header(description="The same, as browsers say it.")] = None,
    ) -> Response:
        seen = await site.see(request, run)
        cursor = _cursor(after, last_event_id)
        if not site.hub.has_room(by := _who(seen)):
            return _full(run, by, admission)
        feed = await site.hub.feed(run, is_fresh=False)
        if cursor > feed.viewer.seq or (feed.is_over and cursor == feed.viewer.seq):
            # Another server may have told its reader more than this one has heard of yet.
            feed = await site.hub.feed(run)
        if cursor > feed.viewer.seq:
            raise invalid(f"Run {run} has no event {cursor} yet; its last one is {feed.viewer.seq}.")
        if feed.is_over and cursor == feed.viewer.seq:
            return Response(status_code=204)
        return feed.read_events(cursor, by)


def _add_live(router: APIRouter, site: ServerContext, admission: Admission) -> None:
    @router.get(
        "/live",
        summary="The run as the page watches it",
        description="Server-sent events. `view` is the whole view first, then what has changed: top-level fields "
        "replace, `calls` are merged by id and in brief. `call.chunk` is streamed text. It stays open after the end.",
        responses={200: stream_of("The stream."), **errors(404, 429)},
        response_class=Response,
    )
    async def live(request: Request, run: str) -> Response:
        seen = await site.see(request, run)
        if not site.hub.has_room(by := _who(seen)):
            return _full(run, by, admission)
        feed = await site.hub.feed(run, is_fresh=False)
        return feed.read_live(by)


def _cursor(after: int | None, last_event_id: str | None) -> int:
    """A browser that reconnects says where it was; that is newer than the address it was given."""
    if last_event_id:
        if _NUMBER.fullmatch(last_event_id) is None or int(last_event_id) > _SEQ_MOST:
            raise invalid("Last-Event-ID is the id of an event of this stream: a number.")
        return int(last_event_id)
    return after or 0


def _who(seen: AuthorisedRun) -> str:
    """Whose share of the streams this is: a person's, however many tokens and sessions they have."""
    return f"{seen.by.owner}/{seen.by.name}"


def _full(run: str, by: str, admission: Admission) -> Response:
    admission.refused += 1
    _log.warning("there is no room for another stream of %s", by, extra={"run": run})
    told = "There is no room for another stream now; everything else still works. Try again in a moment."
    return answer(503, "busy", told, {"Retry-After": "2"})
