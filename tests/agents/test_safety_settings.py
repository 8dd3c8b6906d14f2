"""A safety setting that is misspelt is refused with what may be said, when the tool or the agent is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, Context, Cost, Effects, Elapsed, Repeats, Runtime, Tokens, ToolCalls, Turns, agent, tool
from checkrein.agents.tool import Tool
from checkrein.core.conditions import DEFAULT
from checkrein.errors import MisuseError
from checkrein.models import ScriptedModel, Turn
from tests.support.prompt import typed_at_prompt


async def send(to: str = "") -> str:
    return to


def look(n: int = 0) -> int:
    return n


def build(*tools: Any, **options: Any) -> Agent:
    return Agent("a", model=ScriptedModel(["Done."]), tools=tools, **options)


WAYS: list[Callable[..., Tool]] = [
    lambda **options: tool(send, **options),
    lambda **options: tool(**options)(send),
    lambda **options: Tool(send, **options),
]


@pytest.mark.parametrize("make", WAYS)
def test_a_tool_keeps_what_is_said_of_it_however_it_is_made(make: Callable[..., Tool]) -> None:
    made = make(
        name="mail",
        description="Sends.",
        effect="irreversible",
        idempotent=True,
        on_pause="abort",
        timeout=5,
        changes="the mail to {to}",
    )

    kept = (made.name, made.description, made.effect, made.idempotent, made.on_pause, made.timeout_seconds)
    assert kept == ("mail", "Sends.", "irreversible", True, "abort", 5)
    assert (made.approval, made.what(b'{"to": "ann"}')) == ("block", "the mail to “ann”")


class Box:
    def __init__(self) -> None:
        self.kept: list[str] = []

    def put(self, thing: str) -> int:
        """Put something into the box."""
        self.kept.append(thing)
        return len(self.kept)

    @tool(isolation="thread")
    def take(self) -> str:
        return self.kept.pop()


@pytest.mark.anyio
async def test_a_bound_method_is_a_tool_that_runs_on_its_object() -> None:
    box = Box()
    put = tool(box.put, isolation="thread", effect="reversible")
    filler = Agent("filler", model=ScriptedModel([Turn("", calls=[("put", {"thing": "hat"})]), "Done."]), tools=[put])

    async with Runtime("memory:") as runtime:
        await (await runtime.start(filler, "Fill.")).result()

    assert box.kept == ["hat"]


def test_a_method_without_its_object_is_refused_with_the_way_to_say_it() -> None:
    with pytest.raises(MisuseError, match=r"takes self, which no model can give.*tool\(box\.take"):
        build(Box.take)


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ({"effect": "irreversable"}, "it may be 'unknown', 'none', 'reversible' or 'irreversible'"),
        ({"effect": "read"}, "it may be 'unknown', 'none', 'reversible' or 'irreversible'"),
        ({"effect": None}, "it may be 'unknown', 'none', 'reversible' or 'irreversible'"),
        ({"approval": "blok"}, "it may be 'block', 'queue', True (block) or False"),
        ({"approval": 1}, "it may be 'block', 'queue', True (block) or False"),
        ({"isolation": "thred"}, "it may be 'process' or 'thread'"),
        ({"on_pause": "stop"}, "it may be 'finish', 'abort' or 'hold'"),
        ({"timeout": "5"}, "a number of seconds above 0"),
        ({"timeout": 0}, "a number of seconds above 0"),
        ({"timeout": -1}, "a number of seconds above 0"),
        ({"timeout": math.nan}, "a number of seconds above 0"),
        ({"timeout": True}, "a number of seconds above 0"),
        ({"idempotent": "no"}, "it may be True or False"),
        ({"undo": "discard"}, "it is a function"),
        ({"verify": True}, "it is a function"),
        ({"changes": 5}, "it is a text"),
    ],
)
def test_a_word_that_means_nothing_is_refused_with_those_that_do(
    make: Callable[..., Tool], said: dict[str, Any], allowed: str
) -> None:
    ((name, value),) = said.items()

    with pytest.raises(MisuseError) as refused:
        make(**said)

    assert f"Tool send says {name}={value!r}" in refused.value.message
    assert allowed in refused.value.message


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ({"approval": True}, "block"),
        ({"approval": "block"}, "block"),
        ({"approval": "queue"}, "queue"),
        ({"approval": False}, None),
        ({}, None),
        ({"effect": "irreversible"}, "block"),
        ({"effect": "irreversible", "approval": False}, None),
    ],
)
def test_approval_true_asks_like_block_and_false_asks_nobody(said: dict[str, Any], asks: str | None) -> None:
    assert tool(send, **said).approval == asks


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        (Turns(0), "Turns(0): it takes a whole number from 1 on"),
        (Turns(-1), "Turns(-1): it takes a whole number from 1 on"),
        (Turns("5"), "Turns('5'): it takes a whole number from 1 on"),  # type: ignore[arg-type]
        (ToolCalls(1.5), "ToolCalls(1.5): it takes a whole number from 1 on"),  # type: ignore[arg-type]
        (Tokens(0), "from 1 on"),
        (Effects(-3), "from 1 on"),
        (Repeats(0), "from 1 on"),
        (Cost(-1), "Cost(usd=-1): it takes a number above 0"),
        (Cost(usd=0), "Cost(usd=0): it takes a number above 0"),
        (Cost(usd=math.nan), "Cost(usd=nan): it takes a number above 0"),
        (Elapsed(), "Elapsed(): it takes seconds or minutes"),
        (Elapsed(minutes=-1), "Elapsed(minutes=-1): it takes seconds or minutes"),
        (Elapsed(minutes=5, seconds=-10), "it takes seconds or minutes"),
        (Turns(5, then="stop"), "what then happens is one of 'pause', 'finish', 'cancel'"),  # type: ignore[arg-type]
        (Turns(5) | Elapsed(minutes=1) & Cost(0), "Cost(usd=0)"),
        ("x", "'x' is no condition; write one such as Turns(50) | Cost(usd=1), or None"),
        (5, "5 is no condition"),
        (Turns(5) | 3, "3 is no condition"),  # type: ignore[operator]
        (Turns, "is no condition"),
    ],
)
def test_a_cap_that_would_not_hold_what_is_meant_is_refused_when_the_agent_is_built(said: Any, allowed: str) -> None:
    async def program(ctx: Context, goal: str) -> None: ...

    for make in (lambda: build(stop_when=said), lambda: agent(name="a", stop_when=said)(program)):
        with pytest.raises(MisuseError) as refused:
            make()
        assert "Agent a: stop_when cannot be" in refused.value.message
        assert allowed in refused.value.message


@pytest.mark.parametrize(
    "said",
    [None, DEFAULT, Turns(1), Turns(3, then="finish"), Elapsed(seconds=0.5), Cost(0.01) & Repeats(16)],  # type: ignore[arg-type]
)
def test_a_cap_that_holds_is_taken(said: Any) -> None:
    assert build(stop_when=said).stop_when == said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"plan": "Search"}, "plan='Search' is neither a list of titles nor True or False"),
        ({"retries": -1}, "retries=-1 is no whole number from 0 on"),
        ({"retries": "3"}, "retries='3' is no whole number"),
    ],
)
def test_other_settings_of_an_agent_are_refused_too(options: dict[str, Any], why: str) -> None:
    with pytest.raises(MisuseError, match=why):
        build(**options)


@pytest.mark.parametrize("tools", [[5], ["search"], [None], "search", 5])
def test_what_is_no_tool_is_refused_when_the_agent_is_built(tools: Any) -> None:
    with pytest.raises(MisuseError, match=r"is none\.|tools is a list"):
        Agent("a", model=ScriptedModel(["Done."]), tools=tools)


# -- tools that a model could not tell apart


def test_two_tools_of_one_name_are_both_named_with_where_they_are() -> None:
    with pytest.raises(MisuseError) as refused:
        build(send, tool(look, name="send"))

    message = refused.value.message
    assert "Agent a has two tools with the name send" in message
    assert "test_safety_settings.send (test_safety_settings.py:" in message
    assert "test_safety_settings.look (test_safety_settings.py:" in message


def test_an_agent_among_the_tools_counts_as_one() -> None:
    other = Agent("send", model=ScriptedModel(["Done."]))

    with pytest.raises(MisuseError, match=r"two tools with the name send: .*\.send .* and the agent send"):
        build(send, other)


def test_the_tools_of_a_program_are_told_apart_too() -> None:
    async def program(ctx: Context, goal: str) -> None: ...

    with pytest.raises(MisuseError, match="two tools with the name send"):
        agent(name="p", tools=[send, tool(look, name="send")])(program)


def test_one_tool_twice_is_one_tool() -> None:
    both = tool(send)

    assert list(build(both, both).tools) == ["send"]


# -- what cannot cross into a worker process


def make_deps() -> dict[str, int]:
    return {"n": 1}


@pytest.mark.parametrize("deps", [{"n": 1}, object(), lambda: {"n": 1}])
def test_deps_that_a_worker_could_not_have_are_refused_when_the_agent_is_built(deps: Any) -> None:
    async def program(ctx: Context, goal: str) -> None: ...

    for make in (lambda: build(look, deps=deps), lambda: agent(name="a", tools=[look], deps=deps)(program)):
        with pytest.raises(MisuseError) as refused:
            make()
        assert "its tool look runs in a worker process" in refused.value.message
        assert "Give deps=make_deps" in refused.value.message


@pytest.mark.parametrize(
    ("tools", "deps"),
    [
        ([look], make_deps),
        ([look], None),
        ([send], {"n": 1}),
        ([tool(look, isolation="thread")], {"n": 1}),
        ([], object()),
    ],
)
def test_deps_that_every_tool_can_have_are_taken(tools: list[Any], deps: Any) -> None:
    assert build(*tools, deps=deps).deps is deps


def test_a_def_typed_into_an_asyncio_prompt_is_refused_with_the_reason_and_the_remedy(tmp_path: Path) -> None:
    typed = "from checkrein import Agent\nfrom checkrein.models import ScriptedModel\n"
    typed += "def add(a: int) -> int: return a\n\n"
    typed += "Agent('a', model=ScriptedModel(['x']), tools=[add])\n"

    done = typed_at_prompt(typed, tmp_path)

    assert "add cannot run in a worker process: it was typed in at a prompt" in done.stderr + done.stdout
    assert 'isolation="thread"' in done.stderr + done.stdout
