"""Who is asked: messages, the port every model fits, a scripted model, and histories that providers accept."""

from checkrein.models.base import (
    Collector,
    Delta,
    Finish,
    Finished,
    Model,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageDelta,
    close,
    collect,
    estimate_tokens,
)
from checkrein.models.history import Fate, check, repair, result_of
from checkrein.models.messages import (
    NO_HISTORY,
    Assistant,
    Message,
    Note,
    Request,
    Settings,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
    as_json,
    hash_after,
)
from checkrein.models.registry import known, register, resolve
from checkrein.models.scripted import Failure, ScriptedModel, Turn

__all__ = [
    # asking
    "Model",
    "resolve",
    "register",
    "known",
    "Request",
    "Settings",
    "ToolSpec",
    # what is said
    "Message",
    "User",
    "Assistant",
    "ToolCall",
    "ToolResult",
    "Note",
    "as_json",
    # the answer as it comes
    "Delta",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "UsageDelta",
    "Finished",
    "Finish",
    "Collector",
    "Reply",
    "collect",
    "close",
    "estimate_tokens",
    # histories
    "repair",
    "check",
    "Fate",
    "result_of",
    "NO_HISTORY",
    "hash_after",
    # a model for tests
    "ScriptedModel",
    "Turn",
    "Failure",
]
