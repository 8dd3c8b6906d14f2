"""What a server answered, as a JSON value: text as it is, structure as it is, everything else by name and size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

WRAPPED = "result"
"""Under this name a server puts what is no object, because a structured result had to be one."""


def value_of(content: Sequence[Any], structured: Any) -> Any:
    """One value for both forms of an answer. Where they say the same it is said once."""
    texts = [shown(block) for block in content]
    text = "\n".join(texts)
    if structured is None:
        return text
    value = structured[WRAPPED] if isinstance(structured, dict) and structured.keys() == {WRAPPED} else structured
    if not texts or value in (text, _parsed(text), texts, [_parsed(one) for one in texts]):
        return value
    return {"text": text, "structured": structured}


def shown(block: Any) -> str:
    """A piece of content in words. Only text is passed on; the rest would not fit what a model is told in a result."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {_decoded_size(block.data)} bytes, not shown]"
        case "resource_link":
            kind = f", {block.mime_type}" if block.mime_type else ""
            size = f", {block.size} bytes" if block.size is not None else ""
            return f"[resource {block.name} at {block.uri}{kind}{size}]"
        case "resource":
            return _embedded(block.resource)
        case other:
            return f"[{other}, not shown]"


def _embedded(resource: Any) -> str:
    kind = f" {resource.mime_type}" if resource.mime_type else ""
    text = getattr(resource, "text", None)
    size = _decoded_size(resource.blob) if text is None else len(text.encode("utf-8", "surrogatepass"))
    return f"[resource{kind} at {resource.uri}, {size} bytes, not shown]"


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _parsed(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text


def progress_line(done: float, total: float | None, message: str | None) -> str:
    """`3 of 10: reading`."""
    line = f"{done:g}" if total is None else f"{done:g} of {total:g}"
    words = " ".join((message or "").split())
    return f"{line}: {words[:300]}\n" if words else f"{line}\n"
