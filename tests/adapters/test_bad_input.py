"""What cannot be adapted is refused in one sentence, with the line to write."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from checkrein import Runtime
from checkrein.adapters import bridge
from checkrein.adapters.bridge import Rules, require
from checkrein.errors import MisuseError


def test_something_that_is_no_agent_of_the_framework(framework: Any) -> None:
    with pytest.raises(MisuseError, match="takes a"):
        framework.interruptible("no agent")


def test_an_agent_without_a_name(framework: Any) -> None:
    with pytest.raises(MisuseError, match=r'interruptible\(agent, name="support"\)'):
        framework.interruptible(framework.nameless())


def test_rules_for_a_tool_that_is_not_there_or_that_are_none(framework: Any) -> None:
    plain = framework.plain("http://127.0.0.1:1/v1", "key")
    with pytest.raises(MisuseError, match="has no tool sent; there are: "):
        framework.interruptible(plain, tools={"sent": Rules()})
    with pytest.raises(MisuseError, match=r"write Rules\("):
        framework.interruptible(plain, tools={"note_down": {"effect": "none"}})
    with pytest.raises(MisuseError, match="effect='nothing'"):
        framework.interruptible(plain, tools={"note_down": Rules(effect="nothing")})  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_two_agents_of_one_name(framework: Any) -> None:
    one, other = (framework.interruptible(framework.plain("http://127.0.0.1:1/v1", "key")) for _ in range(2))
    async with Runtime("memory:", agents=[one]) as runtime:
        with pytest.raises(MisuseError, match="two agents with the name support"):
            await runtime.start(other, "Go.")


def test_a_framework_that_is_missing_or_older_than_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MisuseError, match=r"Such is not installed.*1\.2\.3.*pip install 'checkrein\[such\]'"):
        require("no-such-framework", "1.2.3", "such", framework="Such")
    with pytest.raises(MisuseError, match=r"pytest \d+\.\S+ is installed, and this adapter needs 999\.0 or later: pip"):
        require("pytest", "999.0", "such", framework="Such")


def test_a_module_of_an_adapter_says_so_when_it_is_imported(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(bridge, "version", none)
    name = framework.interruptible.__module__
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MisuseError, match="is not installed"):
        importlib.import_module(name)
