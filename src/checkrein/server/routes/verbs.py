"""The verbs: pause, resume, redirect, cancel, ask; why; and what is said about single calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request, Response

from checkrein.control.verbs import Settling
from checkrein.control.view import CallView
from checkrein.core.events import VerbAccepted
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.core.words import Verb
from checkrein.errors import MisuseError, Refused
from checkrein.server import bodies as b
from checkrein.server.auth.principals import Action
from checkrein.server.bodies import body_of, json_answer
from checkrein.server.errors import not_found
from checkrein.server.routes.docs import errors, json_of, ref, takes
from checkrein.server.routes.runs import call_answer
from checkrein.server.site import Seen, Site

V = TypeVar("V", bound=b.VerbBody)
B = TypeVar("B")

_RECEIPT: Final = {
    200: json_of("Settled: what was stopped, what was undone, what is unknown or left.", ref(Receipt)),
    202: json_of("Accepted and in force; what it still waits for.", ref(Settling)),
    **errors(403, 404, 409, 422),
}
_CALL: Final = {200: json_of("The call.", ref(CallView)), **errors(403, 404, 409, 422)}


def routes(site: Site) -> APIRouter:
    router = APIRouter(prefix="/api/runs/{run}", tags=["verbs"])

    async def verb(request: Request, run: str, kind: type[V], name: Verb, act: Callable[[Seen, V], Any]) -> Response:
        seen = await site.see(request, run, Action.STEER)
        wanted = await body_of(request, kind)
        if wanted.request_id is not None:
            await _check_unused(site, run, wanted.request_id, name)
        try:
            return _answer(await act(seen, wanted))
        except MisuseError:
            if wanted.request_id is not None:  # perhaps used for something else at the same moment
                await _check_unused(site, run, wanted.request_id, name)
            raise

    @router.post(
        "/pause",
        summary="Stop the spending and keep the context",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.PauseBody, {"reason": "let me look"}),
    )
    async def pause(request: Request, run: str) -> Response:
        async def act(seen: Seen, body: b.PauseBody) -> Receipt | Settling:
            return await site.control.pause(run, **_common(seen, body))

        return await verb(request, run, b.PauseBody, Verb.PAUSE, act)

    @router.post(
        "/resume",
        summary="Go on exactly there, perhaps with an instruction",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.ResumeBody, {"instruction": "summarise and stop"}),
    )
    async def resume(request: Request, run: str) -> Response:
        async def act(seen: Seen, body: b.ResumeBody) -> Receipt | Settling:
            return await site.control.resume(
                run, body.instruction, expected_seq=body.expected_seq, **_common(seen, body)
            )

        return await verb(request, run, b.ResumeBody, Verb.RESUME, act)

    @router.post(
        "/redirect",
        summary="Stop what is in flight, keep finished work, and do this next",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.RedirectBody, {"instruction": "only Q3"}, required=True),
    )
    async def redirect(request: Request, run: str) -> Response:
        async def act(seen: Seen, body: b.RedirectBody) -> Receipt | Settling:
            return await site.control.redirect(
                run, body.instruction, when=body.when, expected_seq=body.expected_seq, **_common(seen, body)
            )

        return await verb(request, run, b.RedirectBody, Verb.REDIRECT, act)

    @router.post(
        "/cancel",
        summary="Stop everything, undo what is open, keep partial work in the thread",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.CancelBody, {"reason": "wrong direction", "undo": "open"}),
    )
    async def cancel(request: Request, run: str) -> Response:
        async def act(seen: Seen, body: b.CancelBody) -> Receipt | Settling:
            return await site.control.cancel(run, undo=body.undo, **_common(seen, body))

        return await verb(request, run, b.CancelBody, Verb.CANCEL, act)

    @router.post(
        "/ask",
        summary="Ask a side question",
        description="Answered from a copy of the context, without tools, while the run goes on or stays paused.",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.AskBody, {"question": "How far are you?"}, required=True),
    )
    async def ask(request: Request, run: str) -> Response:
        async def act(seen: Seen, body: b.AskBody) -> Receipt | Settling:
            receipt = await site.control.ask(run, body.question, expected_seq=body.expected_seq, **_common(seen, body))
            if isinstance(receipt, Receipt) and receipt.answer is None:
                why = await site.control.why_unanswered(receipt)
                raise Refused(f"The question to run {run} got no answer: {why}.", code="no_answer", run=run)
            return receipt

        return await verb(request, run, b.AskBody, Verb.ASK, act)

    @router.post(
        "/reason",
        summary="Say why it was stopped, also afterwards",
        status_code=204,
        responses={204: {"description": "It is written down."}, **errors(403, 404, 422)},
        response_class=Response,
        openapi_extra=takes(b.ReasonBody, {"reason": "wrong direction"}, required=True),
    )
    async def reason(request: Request, run: str) -> Response:
        seen = await site.see(request, run, Action.STEER)
        body = await body_of(request, b.ReasonBody)
        await site.control.add_reason(run, body.reason, by=seen.by.name, note=body.note)
        return Response(status_code=204)

    # -- single calls

    async def about(
        request: Request, run: str, call: str, kind: type[B], take: Callable[[str, B], Awaitable[State]]
    ) -> Response:
        seen = await site.see(request, run, Action.STEER)
        body = await body_of(request, kind)
        try:
            await take(seen.by.name, body)
        except Refused:
            await _check_call(site, run, call)
            raise
        return await call_answer(await site.hub.feed(run), call)

    @router.post(
        "/calls/{call}/approve",
        summary="Let a call be made that waits for consent",
        responses=_CALL,
        response_class=Response,
        openapi_extra=takes(b.DecideBody, {"note": "checked the address"}),
    )
    async def approve(request: Request, run: str, call: str) -> Response:
        def take(by: str, body: b.DecideBody) -> Awaitable[State]:
            return site.control.approve(run, call, by=by, note=body.note)

        return await about(request, run, call, b.DecideBody, take)

    @router.post(
        "/calls/{call}/deny",
        summary="Do not let it be made",
        responses=_CALL,
        response_class=Response,
        openapi_extra=takes(b.DecideBody, {"note": "not to customers"}),
    )
    async def deny(request: Request, run: str, call: str) -> Response:
        def take(by: str, body: b.DecideBody) -> Awaitable[State]:
            return site.control.deny(run, call, by=by, note=body.note)

        return await about(request, run, call, b.DecideBody, take)

    @router.post(
        "/calls/{call}/resolve",
        summary="Say what became of a call in doubt",
        responses=_CALL,
        response_class=Response,
        openapi_extra=takes(b.ResolveBody, {"outcome": "happened"}, required=True),
    )
    async def resolve(request: Request, run: str, call: str) -> Response:
        def take(by: str, body: b.ResolveBody) -> Awaitable[State]:
            return site.control.resolve(run, call, body.outcome, by=by, result=body.result, note=body.note)

        return await about(request, run, call, b.ResolveBody, take)

    @router.post(
        "/calls/{call}/retry_undo",
        summary="Try an undo again that did not work",
        responses=_CALL,
        response_class=Response,
        openapi_extra=takes(b.RetryBody, {}),
    )
    async def retry_undo(request: Request, run: str, call: str) -> Response:
        return await about(request, run, call, b.RetryBody, lambda by, _: site.control.retry_undo(run, call, by=by))

    @router.post(
        "/calls/{call}/check",
        summary="Have the tool of a call in doubt look once more whether it happened",
        responses=_CALL,
        response_class=Response,
        openapi_extra=takes(b.RetryBody, {}),
    )
    async def check(request: Request, run: str, call: str) -> Response:
        return await about(request, run, call, b.RetryBody, lambda by, _: site.control.check(run, call, by=by))

    @router.post(
        "/calls/{call}/abort",
        summary="Do not wait for this call: stop it",
        responses=_RECEIPT,
        response_class=Response,
        openapi_extra=takes(b.AbortBody, {"wait": 5}),
    )
    async def abort(request: Request, run: str, call: str) -> Response:
        seen = await site.see(request, run, Action.STEER)
        body = await body_of(request, b.AbortBody)
        try:
            return _answer(await site.control.abort(run, call, by=seen.by.name, reason=body.reason, wait=body.wait))
        except Refused:
            await _check_call(site, run, call)
            raise

    return router


def _common(seen: Seen, body: b.VerbBody) -> dict[str, Any]:
    return {"by": seen.by.name, "reason": body.reason, "request_id": body.request_id or "", "wait": body.wait}


def _answer(receipt: Receipt | Settling) -> Response:
    return json_answer(receipt, 202 if isinstance(receipt, Settling) else 200)


async def _check_unused(site: Site, run: str, request_id: str, verb: Verb) -> None:
    """An id of a request is that of one verb: whoever uses it for another must not get the receipt of the first."""
    known = await site.backend.journal.find(run, request_id)
    if known is not None and not (isinstance(known.event, VerbAccepted) and known.event.verb is verb):
        told = f"The request_id {request_id} was used for something else in run {run}; make a new one for each verb."
        raise Refused(told, code="request_id_used", run=run)


async def _check_call(site: Site, run: str, call: str) -> None:
    """Raise a 404 if what was refused is about a call that there is not."""
    viewer = (await site.hub.feed(run)).viewer
    if viewer.call(call) is None and call not in viewer.effects:
        raise not_found("call_not_found", f"Run {run} has no call {call}.", call=call) from None
