"""`checkrein demo --real` without its model: what is missing, how large it is, and what brings it."""

from __future__ import annotations

import os

import pytest

from checkrein.demo import engine, engine_main
from checkrein.errors import WrongInput


def test_a_model_that_is_not_installed_is_named_with_its_size_and_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_main, "ENGINE", "no_such_engine_of_ours")

    with pytest.raises(WrongInput, match="no_such_engine_of_ours") as raised:
        engine.require()

    assert raised.value.code == "model_not_installed"
    assert engine.INSTALL in str(raised.value)
    assert "127 MB" in str(raised.value)


def test_the_meter_says_at_rest_only_when_hardly_anything_is_used() -> None:
    assert engine.bar(0.0).endswith("0, at rest")
    assert engine.bar(0.5).endswith("0.5 cores")
    assert "█" not in engine.bar(0.0)


def test_the_meter_reads_the_process_table() -> None:
    before = engine.cpu_seconds(os.getpid())
    while engine.cpu_seconds(os.getpid()) <= before:
        sum(range(10_000))

    assert engine.cpu_seconds(2**22 + 1) == 0.0, "of a process that is gone"
