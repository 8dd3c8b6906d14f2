"""Verbs that are waited for with the patience of a test where none says how long it waits. For a folder's conftest."""

from __future__ import annotations

import pytest

from checkrein import Run
from checkrein.control.control import Control
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def patient_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a receipt may take longer than a person likes to wait, and is still the receipt.

    A test about what is said meanwhile gives its own `wait`.
    """
    for owner in (Run, Control):
        for method in vars(owner).values():
            if "wait" in (getattr(method, "__kwdefaults__", None) or {}):
                monkeypatch.setitem(method.__kwdefaults__, "wait", PATIENCE_SECONDS)
