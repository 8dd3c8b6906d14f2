"""Evidence over HTTP: the bundle of a run, its story as a page, and every stop that somebody may see.

Viewers get no bundle. Controllers get those of their own runs, without what watchers withheld; operators all.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from checkrein.control.evidence import bundle
from checkrein.control.stops import Stop, csv_of, newest_stops
from checkrein.server.auth.principals import Action
from checkrein.server.context import ServerContext, check
from checkrein.server.openapi import errors, json_of, ref
from checkrein.server.schemas import json_answer

_ZIP: Final[dict[str, Any]] = {"description": "The bundle.", "content": {"application/zip": {}}}
_PAGE: Final[dict[str, Any]] = {"description": "The page.", "content": {"text/html": {}}}
_STOPS: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["stops", "damaged"],
    "properties": {
        "stops": {"type": "array", "items": ref(Stop)},
        "damaged": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_WITHHELD: Final = Query(description="With the text that watchers withheld; for operators.")


def routes(site: ServerContext) -> APIRouter:
    router = APIRouter(prefix="/api", tags=["evidence"])
    _add_bundle(router, site)
    _add_story(router, site)
    _add_stops(router, site)
    return router


async def _gathered(site: ServerContext, request: Request, run: str, withheld: bool) -> tuple[str, bundle.Contents]:
    """Who asks, and all that they may have of the run."""
    seen = await site.see(request, run, Action.STEER)
    if withheld:
        check(seen.by, Action.OPERATE)
    return seen.by.name, await bundle.gather(site.backend.journal, run, with_withheld=withheld)


def _add_bundle(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/runs/{run}/evidence",
        summary="The evidence of a run",
        description="One zip file that `checkrein verify` checks without this server; signed where there is a key.",
        responses={200: _ZIP, **errors(403, 404)},
        response_class=Response,
    )
    async def evidence(request: Request, run: str, withheld: Annotated[bool, _WITHHELD] = False) -> Response:
        who, contents = await _gathered(site, request, run, withheld)
        store_at = site.backend.journal.now()
        data = bundle.pack(contents, key=site.backend.signing_key, made_by=who, at=time.time(), store_at=store_at)
        name = f'attachment; filename="evidence-{_plain(run)}.zip"'
        headers = {"Content-Disposition": name, "Cache-Control": "no-store"}
        return Response(data, media_type="application/zip", headers=headers)


def _add_story(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/runs/{run}/story",
        summary="The story of a stop, as a page",
        description="The same page as `story.html` in the bundle: no script, nothing from elsewhere.",
        responses={200: _PAGE, **errors(403, 404)},
        response_class=Response,
    )
    async def story(request: Request, run: str, withheld: Annotated[bool, _WITHHELD] = False) -> Response:
        _, contents = await _gathered(site, request, run, withheld)
        return Response(
            bundle.page_of(contents), media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-store"}
        )


def _add_stops(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/stops",
        summary="Every stop, newest first",
        description="With who, why, how long it took, the text that was on show and the nearest flag of a watcher.",
        responses={200: json_of("The stops.", _STOPS), **errors(403, 422)},
        response_class=Response,
    )
    async def stops(
        request: Request,
        reason: Annotated[str | None, Query(min_length=1, max_length=200, description="A part of a reason.")] = None,
        flagged: Annotated[bool, Query(description="Only stops of runs that a watcher flagged.")] = False,
        verb: Annotated[Literal["pause", "redirect", "cancel", "halt"] | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
        format: Annotated[Literal["json", "csv"], Query(description="`csv`: a table to be kept.")] = "json",
    ) -> Response:
        principal = await site.principal(request)
        found = await newest_stops(
            site.backend.journal, principal.may_see, limit=limit, reason=reason, flagged=flagged, verb=verb
        )
        if format == "csv":
            headers = {"Content-Disposition": 'attachment; filename="stops.csv"', "Cache-Control": "no-store"}
            return Response(csv_of(found.stops), media_type="text/csv; charset=utf-8", headers=headers)
        return json_answer(msgspec.structs.asdict(found))


def _plain(run: str) -> str:
    return "".join(letter for letter in run if letter.isascii() and (letter.isalnum() or letter in "-_."))
