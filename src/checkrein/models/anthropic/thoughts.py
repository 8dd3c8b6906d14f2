"""Thinking on the Anthropic wire: where it stood in an answer, and how to ask for it.

The provider wants its thinking back: every block with its signature, unchanged, in its place among text and tool calls.
An `Assistant` holds one thinking, one text and one list of calls; so what the wire keeps as its signature says how they
were interleaved. Blocks that hold nothing to read (the provider hid or sealed them) are kept in the same way.

How to ask depends on the model's generation, and that on its name: since 4.6 the model decides for itself how much to
think and is told how hard to try; before, it is given a number of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from checkrein.models.messages import Assistant

Block = dict[str, Any]

SEALED: Final = -1
"""In place of the length of a block that only the provider can read."""


class Thought(msgspec.Struct, array_like=True, gc=False):
    """A block of thinking: how much text and how many tool calls came before it, and how long it is."""

    text: int
    calls: int
    length: int
    seal: str
    """Its signature, "" if it has none; all of it where it is sealed."""


_thoughts: Final = msgspec.json.Decoder(list[Thought])


def packed(thoughts: Sequence[Thought]) -> str:
    """What to keep as the signature of an answer with these thoughts."""
    return msgspec.json.encode(thoughts).decode()


def _unpacked(signature: str) -> list[Thought]:
    """The thoughts of an answer; none if it came over another wire."""
    try:
        return _thoughts.decode(signature)
    except msgspec.DecodeError:
        return []


def blocks_of(message: Assistant, *, thinks: bool) -> list[Block]:
    """What the assistant said, block by block as it came. Without `thinks` its thinking is left out.

    Thinking that is not whole, or that something was taken out of, has no signature that fits, and is left out.
    """
    thoughts = _unpacked(message.signature) if thinks and message.signature else []
    if sum(max(0, thought.length) for thought in thoughts) > len(message.thinking):
        thoughts = []
    blocks: list[Block] = []
    text = calls = thought_of = 0
    for thought in thoughts:
        blocks += _said(message, slice(text, thought.text), slice(calls, thought.calls))
        text, calls = thought.text, thought.calls
        if thought.length == SEALED:
            blocks.append({"type": "redacted_thinking", "data": thought.seal})
            continue
        thinking = message.thinking[thought_of : thought_of + thought.length]
        thought_of += thought.length
        if thought.seal:
            blocks.append({"type": "thinking", "thinking": thinking, "signature": thought.seal})
    blocks += _said(message, slice(text, None), slice(calls, None))
    # An answer may not end with a thought, so one that was stopped right after it ends before it.
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()
    return blocks


def _said(message: Assistant, text: slice, calls: slice) -> list[Block]:
    said = message.text[text]
    # White space alone is refused, also where the provider has written it itself.
    blocks: list[Block] = [{"type": "text", "text": said}] if said.strip() else []
    blocks += (
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.calls[calls]
    )
    return blocks


def begins_with_thought(encoded: bytes) -> bool:
    """Whether blocks, as the bytes of the wire, begin with thinking."""
    return encoded.startswith((b'{"type":"thinking"', b'{"type":"redacted_thinking"'))


# -- asking for it

_GENERATION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")

# fmt: off
BUDGETS: Final[Mapping[str, int]] = MappingProxyType({
    "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 32_768,
})
# fmt: on
"""How many tokens of thinking a word for effort is worth to a model that has to be given a number."""

LEAST_BUDGET: Final = 1_024
KINDS: Final = frozenset({"adaptive", "disabled", "between_tools"})


def generation_of(model: str) -> tuple[int, int] | None:
    """4.6 of claude-opus-4-6; None where the name does not say."""
    found = _GENERATION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def is_since(model: str, generation: tuple[int, int]) -> bool:
    """Whether it is a Claude of that generation or later. A name without a number is one of the newest."""
    return "claude" in model and (generation_of(model) or generation) >= generation


def thinking_for(model: str, reasoning: str, limit: int) -> Mapping[str, Any]:
    """The fields that ask for thinking, given the word in `Settings.reasoning` and the limit on the whole answer."""
    word = reasoning.strip().lower()
    if word in KINDS:
        return {"thinking": {"type": word}}
    if not word.isdecimal() and is_since(model, (4, 6)):
        # Newer models think in secret unless they are asked to tell.
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": word}}
    wanted = int(word) if word.isdecimal() else BUDGETS.get(word, BUDGETS["medium"])
    budget = min(wanted, limit * 3 // 4)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= LEAST_BUDGET else {}


def has_room_for_thought(asked: Mapping[str, Any], turn: Sequence[bytes]) -> bool:
    """Whether thinking may be switched on in the middle of a turn that consists of these blocks so far.

    With a budget it may not, unless the turn began with a thought.
    """
    thinking = asked.get("thinking")
    is_budget = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    return not is_budget or not turn or begins_with_thought(turn[0])
