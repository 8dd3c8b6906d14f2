"""What a client may send, as structs; and how a body becomes one.

A body that is not JSON, or not this, is answered with one sentence that says what is wrong with it. A field that nobody
knows is refused: a misspelt `undo` must not become the default.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request, Response
from msgspec import Meta

from checkrein.control.starting import IfBusy
from checkrein.core.words import Answer, Undo, When
from checkrein.server.errors import JSON, invalid
from checkrein.server.live import spelled_out

T = TypeVar("T")

WAIT_MOST = 60.0

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=100_000)]
Note = Annotated[str, Meta(max_length=10_000)]
RequestId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{8,64}$(?!\n)",
        description="Made by the client; a repeat of a verb "
        "with the same id is not done twice, and gets the same receipt.",
    ),
]
Wait = Annotated[float, Meta(ge=0, le=WAIT_MOST, description="How many seconds to wait for the receipt.")]
Seq = Annotated[
    int,
    Meta(
        ge=0,
        le=2**53,
        description="The `status_seq` of the run as it was looked at: refuses a click that comes too late.",
    ),
]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class StartRun(Body, frozen=True, kw_only=True):
    agent: Name
    goal: Text = ""
    thread: Name | None = None
    continues: Name | None = None
    if_busy: IfBusy = "queue"


class VerbBody(Body, frozen=True, kw_only=True):
    reason: Note = ""
    request_id: RequestId | None = None
    wait: Wait = 5.0


class PauseBody(VerbBody, frozen=True, kw_only=True):
    expected_seq: Seq | None = None
    """Taken and not looked at: a stop is never stale."""


class ResumeBody(VerbBody, frozen=True, kw_only=True):
    instruction: Text | None = None
    expected_seq: Seq | None = None


class RedirectBody(VerbBody, frozen=True, kw_only=True):
    instruction: Text
    when: When = When.NOW
    expected_seq: Seq | None = None


class CancelBody(VerbBody, frozen=True, kw_only=True):
    undo: Undo = Undo.OPEN
    expected_seq: Seq | None = None
    """Taken and not looked at: a stop is never stale."""


class AskBody(VerbBody, frozen=True, kw_only=True):
    question: Text
    expected_seq: Seq | None = None


class AbortBody(Body, frozen=True, kw_only=True):
    reason: Note = ""
    wait: Wait = 5.0


class ReasonBody(Body, frozen=True, kw_only=True):
    reason: Annotated[str, Meta(min_length=1, max_length=200)]
    note: Note = ""


class DecideBody(Body, frozen=True, kw_only=True):
    note: Note = ""


class ResolveBody(Body, frozen=True, kw_only=True):
    outcome: Answer
    result: Any = None
    note: Note = ""


class RetryBody(Body, frozen=True, kw_only=True):
    pass


class ResetBody(Body, frozen=True, kw_only=True):
    scope: Literal["run", "agent", "owner", "all"]
    name: Annotated[str, Meta(max_length=200)] = ""
    reason: Note = ""


class HaltBody(ResetBody, frozen=True, kw_only=True):
    wait: Wait = 5.0


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
