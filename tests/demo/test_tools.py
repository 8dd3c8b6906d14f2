"""The demo's tools by themselves: they work without a runtime, and their undos may be repeated."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkrein.calls.imports import Target, load
from checkrein.demo import tools
from tests.demo.looking import drafts, log, memo, sent, times


def call_of(folder: Path, key: str, result: Any = None) -> Any:
    return SimpleNamespace(arguments={"data": str(folder)}, key=key, result=result)


def test_a_lock_that_is_held_cannot_be_taken(folder: Path) -> None:
    tools.take_lock(str(folder))

    with pytest.raises(RuntimeError, match="locked by"):
        tools.take_lock(str(folder))

    assert times(folder, "lock taken") == 1


def test_only_the_holder_releases_a_lock_and_may_do_so_again(folder: Path) -> None:
    key = tools.take_lock(str(folder))

    tools.release_lock(call_of(folder, "somebody else"))
    held = tools.locks(folder)
    tools.release_lock(call_of(folder, key))
    tools.release_lock(call_of(folder, key))

    assert held == 1
    assert tools.locks(folder) == 0
    assert times(folder, "undo: lock released") == 1


def test_a_draft_is_discarded_by_the_key_of_its_call_and_only_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_key", lambda: "run/c4")
    tools.create_draft(str(folder), to="a@example.com", subject="Hello")
    assert len(drafts(folder)) == 1

    tools.discard_draft(call_of(folder, "run/c4"))
    tools.discard_draft(call_of(folder, "run/c4"))

    assert drafts(folder) == []
    assert times(folder, "undo: draft discarded") == 1


def test_a_draft_that_is_sent_is_a_draft_no_more(folder: Path) -> None:
    draft = tools.create_draft(str(folder), to="a@example.com", subject="Hello")

    tools.send_email(str(folder), "a@example.com", draft, "It is done.")

    assert drafts(folder) == []
    assert sent(folder) == ["To: a@example.com\nSubject: Hello\n\nIt is done.\n"]
    assert log(folder) == ["draft made", "E-MAIL SENT"]


def test_a_draft_goes_to_nobody_but_whom_a_person_consented_to(folder: Path) -> None:
    draft = tools.create_draft(str(folder), to="a@example.com", subject="Hello")

    with pytest.raises(ValueError, match="not addressed"):
        tools.send_email(str(folder), "b@example.com", draft, "It is done.")

    assert sent(folder) == []
    assert tools.send_email.what(b'{"to": "a@example.com"}') == "the e-mail to “a@example.com”"


def test_the_memo_lists_its_customers_by_name(folder: Path) -> None:
    tools.write_memo(str(folder), "Two may leave.", ["C-001", "C-002"], ["Call them."], country="Spain")

    assert "(Spain)" in memo(folder)
    assert "Two may leave." in memo(folder)
    assert memo(folder).count(" € |") == 2


def test_every_irreversible_looking_tool_can_be_undone_or_says_that_it_cannot() -> None:
    """D34"""
    for tool in tools.TOOLS:
        assert tool.undo is not None or tool.effect != "unknown", tool.name
    assert [tool.name for tool in tools.TOOLS if tool.approval] == ["send_email"]


@pytest.mark.parametrize("name", ["release_lock", "discard_draft", "take_lock", "create_draft", "send_email"])
def test_what_a_store_of_an_older_demo_names_is_still_found_where_it_says(name: str) -> None:
    """An undo is recorded as the path of a function, and looked up by whoever takes the run over."""
    assert callable(load(Target("checkrein.demo.tools", name)))
