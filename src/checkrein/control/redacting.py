"""Secrets that a person has typed: into a reason, an instruction, a question, a note, or the result of a call."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.core.commands import Command
from checkrein.runtime.secrets import Secrets

_TYPED: Final = ("reason", "instruction", "question", "note")


def redacted_command(secrets: Secrets, command: Command) -> Command:
    """`command` without secrets in what a person typed."""
    typed = {name: getattr(command, name, None) for name in _TYPED}
    clean: dict[str, Any] = {name: secrets.text(text) for name, text in typed.items() if isinstance(text, str)}
    result = getattr(command, "result", None)
    if result is not None:
        clean["result"] = msgspec.Raw(secrets.json(bytes(result)))
    return msgspec.structs.replace(command, **clean)
