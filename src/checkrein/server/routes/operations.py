"""For those who run the server: whether it lives, its numbers, and the kill switch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from checkrein.control.halt import Halted, Halting, HaltList, Lifted, checked_scope, flags_beside
from checkrein.core.verb_specs import HALT, RESET, VerbSpec
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.journal.base import Scope
from checkrein.journal.operations import HALTED
from checkrein.processes.halt_flags import Flag, is_recorded, put_up, read, take_down
from checkrein.processes.identity import this_process
from checkrein.secrets import Secrets
from checkrein.server.auth.principals import Action
from checkrein.server.backend import store_answers
from checkrein.server.context import ServerContext
from checkrein.server.metrics import Metrics
from checkrein.server.openapi import describe, errors, json_of, ref
from checkrein.server.routes.verbs import ACTIONS
from checkrein.server.schemas import VERB_BODIES, arguments, body_of, json_answer
from checkrein.server.streaming.rate_limit import Admission

_log = logging.getLogger(__name__)

_TEXT = {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
_HEALTH = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


def routes(site: ServerContext, admission: Admission) -> APIRouter:
    router = APIRouter(tags=["operating"])
    _add_health(router, site)
    _add_metrics(router, site, admission)
    _add_halts(router, site)
    _add_scope_verb(router, site, HALT, {200: json_of("What was ended.", ref(Halted)), **errors(403, 404, 422)})
    _add_scope_verb(router, site, RESET, {200: json_of("Whether it was latched.", ref(Lifted)), **errors(403, 422)})
    return router


def _add_health(router: APIRouter, site: ServerContext) -> None:
    @router.head("/healthz", include_in_schema=False)
    @router.get(
        "/healthz",
        summary="Whether this server answers",
        responses={200: json_of("It does.", _HEALTH)},
        response_class=Response,
    )
    async def health() -> Response:
        told = getattr(site.backend, "health", None)
        return json_answer({"status": "ok"} if told is None else told())

    @router.head("/readyz", include_in_schema=False)
    @router.get(
        "/readyz",
        summary="Whether requests should come here now",
        description="Not while the store does not answer within a second, nor once this server ends.",
        responses={200: json_of("They should.", _HEALTH), 503: json_of("They should not.", _HEALTH)},
        response_class=Response,
    )
    async def readiness() -> Response:
        is_ready = not site.backend.is_ending and await store_answers(site.backend.journal)
        return json_answer({"status": "ok" if is_ready else "not ready"}, 200 if is_ready else 503)


def _add_metrics(router: APIRouter, site: ServerContext, admission: Admission) -> None:
    metrics = Metrics(site.backend)

    @router.get(
        "/metrics",
        summary="Numbers for Prometheus",
        description="Runs by status, verbs by agent, reasons, how fast stops were, and permits after a cancel (0).",
        responses={200: _TEXT, **errors(403)},
        response_class=Response,
    )
    async def numbers(request: Request) -> Response:
        await site.principal(request, Action.OPERATE)
        text = await metrics.text(readers=site.hub.readers, refused=admission.refused)
        return Response(text, media_type="text/plain; version=0.0.4")


def _add_halts(router: APIRouter, site: ServerContext) -> None:
    @router.get(
        "/api/halts",
        summary="What is halted",
        description="Who, why and since when. For everybody who may see runs: it says why nothing begins.",
        responses={200: json_of("Every halt in force.", ref(HaltList)), **errors()},
        response_class=Response,
    )
    async def halts(request: Request) -> Response:
        await site.guard.principal(request)
        try:
            found = await Halting(site.backend.journal, this_process()).halts(site.backend.store)
        except StoreUnavailable as error:
            _log.warning("what is halted is told by the flags of this host alone: %s", error)
            found = flags_beside(site.backend.store)
        return json_answer(HaltList(halts=found))


def _add_scope_verb(
    router: APIRouter, site: ServerContext, spec: VerbSpec, responses: Mapping[int | str, dict[str, Any]]
) -> None:
    action = Action.RESET if spec is RESET else ACTIONS[spec.role]

    async def verb(request: Request) -> Response:
        principal = await site.principal(request, action)
        body = await body_of(request, VERB_BODIES[spec.name])
        halting, given = Halting(site.backend.journal, this_process(), clock=site.backend.now), arguments(spec, body)
        try:
            answer = await getattr(halting, spec.name)(by=principal.name, **given)
        except StoreUnavailable as error:
            if spec is RESET:
                raise
            raise _flagged(site.backend.store, principal.name, given, error) from error
        if spec is RESET:
            take_down(site.backend.store, answer.scope.value, answer.name)
        else:
            await _adopt_flag(site, answer.scope, answer.name)
        return json_answer(answer)

    router.add_api_route(f"/api/{spec.name}", verb, **describe(spec, responses))


async def _adopt_flag(site: ServerContext, scope: Scope, name: str) -> None:
    """A flag that this server put up while the store was away is of the halt that is recorded now: a reset takes it
    down on whichever front that is asked for."""
    for flag in read(site.backend.store):
        if (flag.scope, flag.name) == (scope.value, name) and not flag.id:
            recorded = [one.operation for one in await site.backend.journal.operations()]
            halts = [one for one in recorded if one.type == HALTED and (one.scope, one.name) == (scope, name)]
            is_recorded(flag, halts[-1].id)


def _flagged(store: str, by: str, given: Mapping[str, Any], error: StoreUnavailable) -> CheckreinError:
    """The store is away: a flag halts what this host drives, and the answer says that nothing else does."""
    scope = checked_scope(given["scope"], given.get("name", ""))
    reason = Secrets.of(None).text(given.get("reason", ""))
    flag = Flag(scope.value, given.get("name", ""), by, reason, time.time(), this_process().host)
    try:
        put_up(store, flag)
    except OSError as failed:
        return StoreUnavailable(f"{error.message} No flag could be put up either ({failed}): nothing is halted.")
    return StoreUnavailable(
        f"{error.message} {scope.value.capitalize()} {flag.name}".rstrip()
        + f" is halted on host {flag.host} only, by a flag; halt it again when the store answers.",
        code="halted_here_only",
    )
