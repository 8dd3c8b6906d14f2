"""For those who run the server: whether it lives, its numbers, and the kill switch."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from checkrein.control.halting import Halted, Halting, Lifted
from checkrein.runtime.identity import this_process
from checkrein.server.auth.principals import Action
from checkrein.server.bodies import HaltBody, ResetBody, body_of, json_answer
from checkrein.server.gate import Bucket
from checkrein.server.metrics import Metrics
from checkrein.server.routes.docs import errors, json_of, ref, takes
from checkrein.server.site import Site

_TEXT = {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
_HEALTH = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}


def routes(site: Site, bucket: Bucket) -> APIRouter:
    router, metrics = APIRouter(tags=["operating"]), Metrics(site.backend)

    def halting() -> Halting:
        return Halting(site.backend.journal, this_process(), clock=site.backend.now)

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

    @router.get(
        "/metrics",
        summary="Numbers for Prometheus",
        description="Runs by status, verbs by agent, reasons, how fast stops were, and permits after a cancel (0).",
        responses={200: _TEXT, **errors(403)},
        response_class=Response,
    )
    async def numbers(request: Request) -> Response:
        await site.principal(request, Action.OPERATE)
        text = await metrics.text(readers=site.hub.readers, refused=bucket.refused)
        return Response(text, media_type="text/plain; version=0.0.4")

    @router.post(
        "/api/halt",
        summary="The kill switch",
        description="Latched: nothing begins in the scope until it is reset, also after a restart. Every live run in "
        "it is ended; nothing is undone. `name` says which run, agent or owner; `all` has none.",
        responses={200: json_of("What was ended.", ref(Halted)), **errors(403, 404, 422)},
        response_class=Response,
        openapi_extra=takes(HaltBody, {"scope": "agent", "name": "churn", "reason": "runaway"}, required=True),
    )
    async def halt(request: Request) -> Response:
        principal = await site.principal(request, Action.OPERATE)
        body = await body_of(request, HaltBody)
        halted = await halting().halt(body.scope, body.name, by=principal.name, reason=body.reason, wait=body.wait)
        return json_answer(halted)

    @router.post(
        "/api/reset",
        summary="Unlatch the kill switch",
        description="Nothing is resumed by it.",
        responses={200: json_of("Whether it was latched.", ref(Lifted)), **errors(403, 422)},
        response_class=Response,
        openapi_extra=takes(ResetBody, {"scope": "agent", "name": "churn"}, required=True),
    )
    async def reset(request: Request) -> Response:
        await site.principal(request, Action.OPERATE)
        body = await body_of(request, ResetBody)
        return json_answer(await halting().reset(body.scope, body.name))

    return router
