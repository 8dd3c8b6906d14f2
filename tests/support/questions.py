"""How often a journal is asked something."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from checkrein.journal import Journal

NAMES = (
    "read", "load", "states", "lease", "leases", "runs", "tally", "verify", "chunks", "chunks_of", "claim",
    "claim_free", "owners", "leases_of", "departed", "workers", "wanting_undo",
)  # fmt: skip


def count_questions(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What is asked of `journal` from now on, by name."""
    asked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        answer = getattr(journal, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            asked[name] += 1
            return await answer(*args, **kwargs)

        return ask

    for name in NAMES:
        monkeypatch.setattr(journal, name, counted(name))
    return asked
