"""What the OpenAPI description says of bodies and answers: made of the structs themselves, so that it is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Response

from checkrein.control.control import Settling
from checkrein.control.halt import Halted, HaltList, Lifted
from checkrein.control.stops import Stop
from checkrein.control.view import CallView, RunView
from checkrein.control.worker_roster import AgentCard
from checkrein.core.receipts import Receipt
from checkrein.core.verb_specs import VerbSpec
from checkrein.server import schemas
from checkrein.server.errors import ErrorBody
from checkrein.server.run_list import RunList

TEMPLATE: Final = "#/components/schemas/{name}"

STRUCTS: Final[tuple[type, ...]] = (
    AgentCard, CallView, ErrorBody, Halted, HaltList, Lifted, Receipt, RunList, RunView, Settling, Stop,
    schemas.StartRun, schemas.ForkBody, *dict.fromkeys(schemas.VERB_BODIES.values()),
)  # fmt: skip


def components() -> dict[str, Any]:
    """The schemas of everything that is sent and answered."""
    _, found = msgspec.json.schema_components(STRUCTS, ref_template=TEMPLATE)
    return dict(found)


def ref(kind: type) -> dict[str, str]:
    return {"$ref": TEMPLATE.format(name=kind.__name__)}


def takes(kind: type, example: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    """`openapi_extra` for a route whose body is `kind`."""
    content = {"application/json": {"schema": ref(kind), "example": example}}
    return {"requestBody": {"required": required, "content": content}}


def describe(spec: VerbSpec, responses: Mapping[int | str, dict[str, Any]]) -> dict[str, Any]:
    """What `APIRouter.add_api_route` is told of the route of a verb."""
    return {
        "methods": ["POST"],
        "name": spec.path or spec.name,
        "summary": spec.summary,
        "description": spec.description or None,
        "responses": dict(responses),
        "response_class": Response,
        "openapi_extra": takes(schemas.VERB_BODIES[spec.name], dict(spec.example), required=spec.takes_something),
    }


def json_of(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERRORS: Final = {
    401: "No token or session, or one that is not valid any more.",
    403: "The role does not allow this.",
    404: "There is no such run, or it is somebody else's.",
    409: "Refused: the run's status does not allow it. `status` says where it stands, or how it ended.",
    422: "The request cannot be meant; the sentence says what is wrong with it.",
    429: "Too much at once; see `Retry-After`.",
    503: "The store cannot answer now, or the server has no room; see `Retry-After`.",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {code: json_of(_ERRORS[code], ref(ErrorBody)) for code in (401, *codes, 503)}


def stream_of(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
