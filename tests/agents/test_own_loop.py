"""The loop of the how-to, as printed: a plain loop on the vendor's SDK, redirected in the middle of an answer."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkrein import Runtime
from checkrein.testing.provider import Provider, Reply
from tests.support.docs import ROOT, blocks_of

pytestmark = pytest.mark.anyio

LONG = " ".join(f"word{n}" for n in range(400))


@pytest.fixture
def own_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program of the page as a module of a person's project."""
    (block,) = blocks_of(ROOT / "docs/howto/own-loop.md")
    (tmp_path / "own_loop.py").write_text(block.code)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("own_loop", tmp_path / "own_loop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_loop"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["own_loop"]


async def test_the_loop_of_the_page_uses_its_tool_and_is_redirected(
    own_loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D21 D30 D38: the provider is the witness of what it was told."""
    (tmp_path / "notes.txt").write_text("one two three")
    replies = [
        Reply(calls=[("word_count", {"path": str(tmp_path / "notes.txt")})]),
        Reply(LONG, tokens_per_second=50),
        Reply("Trois."),
    ]
    async with Provider(replies) as provider, Runtime("memory:") as runtime:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", str(provider.key))
        run = await runtime.start(own_loop.counter, "How long is notes.txt?")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 5)
        receipt = await run.redirect("In French.")
        result = await run.result()

        assert result == "Trois."
        assert receipt.delivered
        assert [request.how for request in provider.log] == ["completed", "disconnected", "completed"]
        roles = [message["role"] for message in provider.log[2].messages]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]
        assert provider.log[2].messages[2]["content"] == "3"
        assert provider.log[2].messages[-1]["content"] == "In French."
