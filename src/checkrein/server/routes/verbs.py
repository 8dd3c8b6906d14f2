"""The verbs on a run and on its calls: a route for each, made from the table that describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from checkrein.control.control import Settling
from checkrein.control.view import CallView
from checkrein.core.enums import Verb
from checkrein.core.receipts import Receipt
from checkrein.core.verb_specs import SPECS, Answers, MayAsk, VerbSpec
from checkrein.errors import Refused
from checkrein.server.auth.principals import Action
from checkrein.server.context import ServerContext
from checkrein.server.errors import not_found
from checkrein.server.openapi import describe, errors, json_of, ref
from checkrein.server.routes.runs import call_answer
from checkrein.server.schemas import VERB_BODIES, arguments, body_of, json_answer

ACTIONS: Final[Mapping[MayAsk, Action]] = {"viewer": Action.SEE, "controller": Action.STEER, "operator": Action.OPERATE}

_RESPONSES: Final[Mapping[Answers, dict[int | str, dict[str, Any]]]] = {
    "receipt": {
        200: json_of("Settled: what was stopped, what was undone, what is unknown or left.", ref(Receipt)),
        202: json_of("Accepted and in force; what it still waits for.", ref(Settling)),
        **errors(403, 404, 409, 422),
    },
    "call": {200: json_of("The call.", ref(CallView)), **errors(403, 404, 409, 422)},
    "nothing": {204: {"description": "It is written down."}, **errors(403, 404, 409, 422)},
}


def routes(site: ServerContext) -> APIRouter:
    router = APIRouter(prefix="/api/runs/{run}", tags=["verbs"])
    for spec in SPECS.values():
        if spec.target == "run":
            _add_run_verb(router, site, spec)
        elif spec.target == "call":
            _add_call_verb(router, site, spec)
    return router


def _add_run_verb(router: APIRouter, site: ServerContext, spec: VerbSpec) -> None:
    async def verb(request: Request, run: str) -> Response:
        answer = await _take(site, spec, request, run)
        return Response(status_code=204) if answer is None else await _receipt_answer(site, answer)

    code = 204 if spec.answers == "nothing" else 200
    router.add_api_route(
        f"/{spec.path or spec.name}", verb, status_code=code, **describe(spec, _RESPONSES[spec.answers])
    )


def _add_call_verb(router: APIRouter, site: ServerContext, spec: VerbSpec) -> None:
    async def verb(request: Request, run: str, call: str) -> Response:
        try:
            answer = await _take(site, spec, request, run, call)
        except Refused:
            await _check_call(site, run, call)
            raise
        if spec.answers == "receipt":
            return await _receipt_answer(site, answer)
        return await call_answer(await site.hub.feed(run), call)

    router.add_api_route(f"/calls/{{call}}/{spec.name}", verb, **describe(spec, _RESPONSES[spec.answers]))


async def _take(site: ServerContext, spec: VerbSpec, request: Request, *target: str) -> Any:
    """Have a verb taken on a run, or on a call of it, if whoever asks may. What `Control` answers."""
    seen = await site.see(request, target[0], ACTIONS[spec.role])
    body = await body_of(request, VERB_BODIES[spec.name])
    return await getattr(site.control, spec.name)(*target, by=seen.by.name, **arguments(spec, body))


async def _receipt_answer(site: ServerContext, receipt: Receipt | Settling) -> Response:
    if isinstance(receipt, Settling):
        return json_answer(receipt, 202)
    if receipt.verb is Verb.ASK and receipt.answer is None:
        why = await site.control.why_unanswered(receipt)
        raise Refused(f"The question to run {receipt.run} got no answer: {why}.", code="no_answer", run=receipt.run)
    return json_answer(receipt)


async def _check_call(site: ServerContext, run: str, call: str) -> None:
    """Raise a 404 if what was refused is about a call that there is not."""
    viewer = (await site.hub.feed(run)).viewer
    if viewer.call(call) is None and call not in viewer.effects:
        raise not_found("call_not_found", f"Run {run} has no call {call}.", call=call) from None
