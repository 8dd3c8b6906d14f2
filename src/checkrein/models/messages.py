"""What is said to a model and by it, and the hash by which a growing history is told apart.

Messages are data: frozen, tagged, equal after a round trip through JSON. They know no provider. How they look on a wire
is for that wire, whether a provider would accept them in this order is for `history`.

    hash(no messages)     = ""
    hash(history, then m) = SHA-256(hash(history) ‖ m as JSON), in hex
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from checkrein.core.events import Json

if TYPE_CHECKING:
    JsonOrNone = Json | None
else:
    # msgspec cannot decode `Raw | None`. A None is never encoded, being a default, so plain `Raw` reads the same.
    JsonOrNone = Json

NO_HISTORY: Final = ""
"""The hash of a history without messages."""


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """A model asks for a tool. `arguments` are as the model wrote them: valid JSON, but not always an object."""

    id: str
    name: str
    arguments: Json


class User(msgspec.Struct, frozen=True, gc=False, tag="user"):
    """A person said this: a goal, an instruction."""

    text: str


class Note(msgspec.Struct, frozen=True, gc=False, tag="note"):
    """The runtime tells the model something true, such as what was undone. On most wires it is a user's message."""

    text: str


class Assistant(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="assistant"):
    """The model said this, and asked for these tools."""

    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    interrupted: bool = False
    """It was stopped while it spoke: this is what had come by then. Nothing in `calls` was begun."""
    signature: str = ""
    """What the provider wants back together with the thinking; opaque, and of use to the wire that made it only."""


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="tool_result"):
    """What became of the tool call with the id `call`."""

    call: str
    name: str
    content: str
    is_error: bool = False
    interrupted: bool = False
    """The call did not run to its end: `content` says what is known about it."""


Message = User | Assistant | ToolResult | Note


class ToolSpec(msgspec.Struct, frozen=True, gc=False):
    """A tool as a model sees it; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Json


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How to answer. None leaves it to the provider."""

    max_tokens: int | None = None
    temperature: float | None = None
    reasoning: str | None = None
    """How hard to think, in the provider's own word."""
    tool_choice: Literal["auto", "none", "required"] = "auto"
    extra: JsonOrNone = None
    """An object of fields for one provider, handed on as they are."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Everything a model is asked with."""

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: JsonOrNone = None
    """The JSON schema its final answer has to follow; None for plain text."""
    settings: Settings = Settings()
    continues: bool = False
    """The last message is the assistant's, and half: the answer goes on at its very end, and repeats none of it."""
    unseen_tokens: int = 0
    """About how much there is to read that is not here, because somebody else puts the request together."""


def as_json(value: object) -> Json:
    """`value` as the JSON it stands for in a message."""
    return Json(_ENCODER.encode(value))


# -- telling a history by its hash

_ENCODER: Final = msgspec.json.Encoder()


def hash_after(previous_hash: str, messages: Iterable[Message]) -> str:
    """The hash of a history that goes on with `messages`. In how many pieces they come makes no difference."""
    digest = bytes.fromhex(previous_hash)
    for message in messages:
        digest = sha256(digest + _ENCODER.encode(message)).digest()
    return digest.hex()


class RecordedReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of a model's answer."""

    message: Assistant
    model: str
    finish: str = "stop"
