"""What an author may write, what is refused with the remedy, and that nothing is imported or started for it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from checkrein import MCP, Agent
from checkrein.core.enums import OnPause
from checkrein.errors import MisuseError, NotImportable
from checkrein.mcp import server as source_module
from checkrein.mcp.tools import Offer, shown_name
from checkrein.models import ScriptedModel

RUN = ["python", "notes_server.py"]


def undo(call: Any) -> None: ...


def verify(call: Any) -> bool:
    return True


def test_a_server_that_is_not_used_imports_and_starts_nothing() -> None:
    code = (
        "import sys; from checkrein import MCP, Agent, Runtime; from checkrein.models import ScriptedModel; "
        "notes = MCP('notes', command=['no-such-command']); "
        "agent = Agent('a', model=ScriptedModel(['x']), tools=[]); "
        "assert Runtime('memory:').run_sync(agent, 'Go.') == 'x'; "
        "Agent('b', model=ScriptedModel([]), tools=[notes]); "
        "print(*sorted({'mcp', 'httpx2', 'starlette'} & sys.modules.keys()))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "find_spec", lambda name: None)

    with pytest.raises(MisuseError, match=r"pip install 'checkrein\[mcp\]'"):
        MCP("notes", command=RUN)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "either a command or a url"),
        ({"command": RUN, "url": "http://127.0.0.1/mcp"}, "either a command or a url"),
        ({"command": "python notes_server.py"}, "as a list"),
        ({"command": []}, "as a list"),
        ({"url": "notes_server.py"}, "is no http or https address"),
        ({"url": "http://127.0.0.1/mcp", "env": {"A": "B"}}, "env and cwd are for a command"),
        ({"command": RUN, "headers": {"A": "B"}}, "Use env"),
        ({"command": RUN, "tools": {"add": {"efect": "none"}}}, "efect means nothing here; say effect, idempotent"),
        (
            {"command": RUN, "tools": {"add": {"effect": "nil"}}},
            "it may be 'unknown', 'none', 'reversible' or 'irreversible'",
        ),
        ({"command": RUN, "tools": {"add": {"effect": "none", "undo": undo}}}, "Leave one of them out"),
        ({"command": RUN, "tools": {"add": {"on_pause": "hold"}}}, "cannot be held"),
        ({"command": RUN, "tools": {"add": {"on_pause": "abort", "idempotent": True}}}, "Use on_pause='finish'"),
        ({"command": RUN, "only": ["add"], "tools": {"remove": {"effect": "none"}}}, "remove, not among only="),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_remedy(options: dict[str, Any], why: str) -> None:
    with pytest.raises(MisuseError) as refused:
        MCP("notes", **options)

    assert why in refused.value.message
    assert "notes" in refused.value.message


def test_an_undo_that_a_worker_could_not_import_is_refused() -> None:
    with pytest.raises(NotImportable):
        MCP("notes", command=RUN, tools={"add": {"undo": lambda call: None}})


def test_a_secret_in_an_address_or_an_argument_is_not_part_of_where_a_server_is() -> None:
    assert MCP("wiki", url="https://me:word@wiki.example/mcp?token=s3cr3t").place == "https://wiki.example/mcp"
    assert MCP("notes", command=[*RUN, "--token=s3cr3t"]).place == "python"


def test_the_same_server_is_the_same_for_two_agents_and_another_is_not() -> None:
    key = MCP("notes", command=RUN, env={"A": "1", "B": "2"}, only=["add"]).key

    assert MCP("notes", command=RUN, env={"B": "2", "A": "1"}).key == key
    assert MCP("notes", command=RUN, env={"A": "1"}).key != key
    assert MCP("other", command=RUN, env={"A": "1", "B": "2"}).key != key


def test_the_author_says_more_than_the_server_and_the_server_nothing_unless_it_is_trusted() -> None:
    hints = Offer(name="look", read_only=True, idempotent=True)
    wild = Offer(name="drop", destructive=True)
    plain, trusting = MCP("a", command=RUN), MCP("a", command=RUN, trust_annotations=True)
    firm = MCP("a", command=RUN, trust_annotations=True, tools={"look": {"effect": "unknown", "idempotent": False}})

    [unknown, unknown_too] = plain.chosen([hints, wild])
    [looked, dropped] = trusting.chosen([hints, wild])
    [said] = firm.chosen([hints])

    assert (unknown.effect, unknown.idempotent, unknown_too.approval) == ("unknown", False, None)
    assert (looked.effect, looked.idempotent, looked.has_effect) == ("none", True, False)
    assert (dropped.effect, dropped.approval) == ("irreversible", "block")
    assert (said.effect, said.idempotent) == ("unknown", False)


def test_what_an_author_says_of_a_tool_is_what_is_done_with_it() -> None:
    says = {"effect": "irreversible", "approval": False, "undo": undo, "verify": verify, "timeout": 3.0}
    source = MCP("notes", command=RUN, prefix="n_", tools={"add": says, "remove": {"approval": True}})

    add, remove = source.tool("add"), source.tool("remove")

    assert (add.name, add.on_server) == ("n_add", "add")
    assert (add.approval, add.timeout_seconds, add.on_pause) == (None, 3.0, OnPause.FINISH)
    assert remove.approval == "block"
    assert list(source.functions()) == [undo, verify]
    assert source.undo_at(f"{__name__}:undo") is undo
    assert source.verify_of("n_add") is verify
    assert source.verify_of("add") is None


def test_a_name_that_no_provider_would_take_is_changed_into_one() -> None:
    assert shown_name("wiki_", "pages/read.all") == "wiki_pages_read_all"
    assert len(shown_name("", "x" * 128)) == 64


def test_an_agent_may_have_servers_beside_other_tools() -> None:
    agent = Agent("a", model=ScriptedModel([]), tools=[MCP("notes", command=RUN), undo])

    assert [source.name for source in agent.sources] == ["notes"]
    assert list(agent.tools) == ["undo"]
