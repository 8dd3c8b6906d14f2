"""What a client may send, as structs; and how a body becomes one.

A body that is not JSON, or not this, is answered with one sentence that says what is wrong with it. A field that nobody
knows is refused: a misspelt `undo` must not become the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Request, Response
from msgspec import Meta

from checkrein.control import start
from checkrein.control.start import IfBusy
from checkrein.core.verb_specs import EXPECTED_SEQ, REQUEST_ID, SPECS, WAIT, ExpectedSeq, Parameter, VerbSpec
from checkrein.server.errors import JSON, invalid
from checkrein.server.streaming.live_view import spelled_out

T = TypeVar("T")

WAIT_MOST: Final = 60.0

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=100_000)]
RequestId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{8,64}$(?!\n)", description=REQUEST_ID.help)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_MOST, description=WAIT.help)]
Seq = Annotated[int, Meta(ge=0, le=2**53, description=EXPECTED_SEQ.help)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class StartRun(Body, frozen=True, kw_only=True):
    agent: Name
    goal: Text = ""
    thread: Name | None = None
    continues: Name | None = None
    if_busy: IfBusy = "queue"

    def asked_by(self, name: str, owner: str) -> start.StartRun:
        """What somebody of this name wants, for a run that belongs to `owner`."""
        return start.StartRun(**msgspec.structs.asdict(self), owner=owner, by=name)


class ForkBody(Body, frozen=True, kw_only=True):
    at: Annotated[int, Meta(ge=1, le=2**31, description="The number of the last step that is kept.")]
    instruction: Annotated[str, Meta(min_length=1, max_length=100_000)] | None = None


# -- verbs

_SHARED: Final = {"retry_undo": "RetryBody", "check": "RetryBody"}
"""Verbs that take the same have one name for it."""


def _verb_bodies() -> Iterator[tuple[str, type[msgspec.Struct]]]:
    made: dict[str, type[msgspec.Struct]] = {}
    for spec in SPECS.values():
        name = _SHARED.get(spec.name, f"{(spec.path or spec.name).capitalize()}Body")
        if name not in made:
            made[name] = msgspec.defstruct(
                name, _fields(spec), bases=(Body,), module=__name__, frozen=True, kw_only=True
            )
        yield spec.name, made[name]


def _fields(spec: VerbSpec) -> list[tuple[str, Any] | tuple[str, Any, Any]]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (one.body_name or one.name, _bounded(one)) if one.is_required else (one.name, _bounded(one), one.default)
        for one in spec.parameters
    ]
    if spec.has_request_id:
        fields.append((REQUEST_ID.name, RequestId | None, None))
    if spec.expected_seq is not ExpectedSeq.ABSENT:
        fields.append((EXPECTED_SEQ.name, Seq | None, None))
    if spec.wait is not None:
        fields.append((WAIT.name, Wait, spec.wait.http))
    return fields


def _bounded(parameter: Parameter) -> Any:
    """Its type; a text from outside with its bounds, and values of a call as the bytes they came in: a number that is
    read and written again may be another one."""
    if parameter.type == dict[str, Any] | None:
        return dict[str, msgspec.Raw] | None
    if not parameter.longest:
        return parameter.type
    text = Annotated[str, Meta(min_length=parameter.shortest or None, max_length=parameter.longest)]
    return text | None if parameter.is_optional else text


VERB_BODIES: Final[Mapping[str, type[msgspec.Struct]]] = MappingProxyType(dict(_verb_bodies()))
"""The body of each verb, by its name."""


def arguments(spec: VerbSpec, body: msgspec.Struct) -> dict[str, Any]:
    """What `body` says, as the method of `Control` or `Halting` for this verb takes it."""
    given = {one.name: getattr(body, one.body_name or one.name) for one in spec.parameters}
    if spec.has_request_id:
        given[REQUEST_ID.name] = getattr(body, REQUEST_ID.name) or REQUEST_ID.default
    if spec.expected_seq is ExpectedSeq.CHECKED:
        given[EXPECTED_SEQ.name] = getattr(body, EXPECTED_SEQ.name)
    if spec.wait is not None:
        given[WAIT.name] = getattr(body, WAIT.name)
    return given


async def body_of(request: Request, kind: type[T]) -> T:
    """The body as `kind`; nothing at all counts as `{}`. Raises a 422 that says what is wrong."""
    raw = await request.body()
    try:
        return msgspec.json.decode(raw if raw.strip() else b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise invalid(_sentence(str(error))) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise invalid(f"The body is not JSON that can be read: {str(error).removesuffix('.')}.") from None


def _sentence(told: str) -> str:
    what, _, where = told.partition(" - at `$")
    field = where.rstrip("`").lstrip(".")
    return f"{field}: {what}." if field else f"The body is not right: {what}."


def json_answer(value: Any, status: int = 200) -> Response:
    """A struct or a dictionary of them, every field spelled out."""
    spelled = {k: spelled_out(v) for k, v in value.items()} if isinstance(value, dict) else spelled_out(value)
    return Response(msgspec.json.encode(spelled), status, media_type=JSON)
