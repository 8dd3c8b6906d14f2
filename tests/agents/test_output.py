"""What `output=` and a program's return type promise is what `await run.result()` gives."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pydantic
import pytest

from checkrein import Agent, Context, Runtime, agent
from checkrein.agents.output import OutputType
from checkrein.errors import MisuseError
from checkrein.models import ScriptedModel

pytestmark = pytest.mark.anyio


class Model(pydantic.BaseModel):
    count: int
    names: list[str] = []


class Aliased(pydantic.BaseModel):
    count: int = pydantic.Field(alias="theCount")


class OneWay(pydantic.BaseModel):
    """Read under one name, written under another."""

    count: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    count: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.count


@dataclasses.dataclass
class Page:
    url: str
    links: list[str] = dataclasses.field(default_factory=list)


class Inner(msgspec.Struct):
    x: int


class Struct(msgspec.Struct):
    inner: Inner
    others: list[Inner] = []


@pytest.mark.parametrize(
    ("output", "said", "wanted"),
    [
        (Model, '{"count": 2, "names": ["a", "b"]}', Model(count=2, names=["a", "b"])),
        (Aliased, '{"theCount": 2}', Aliased(theCount=2)),
        (OneWay, '{"in": 2}', OneWay.model_validate({"in": 2})),
        (Computed, '{"count": 2}', Computed(count=2)),
        (Page, '{"url": "x"}', Page("x")),
        (Struct, '{"inner": {"x": 1}, "others": [{"x": 2}]}', Struct(Inner(1), [Inner(2)])),
        (list[Struct], '[{"inner": {"x": 1}}]', [Struct(Inner(1))]),
        (dict[str, Page], '{"a": {"url": "x"}}', {"a": Page("x")}),
        (int, "7", 7),
    ],
)
async def test_an_answer_is_a_value_of_the_type_that_was_asked_for(output: Any, said: str, wanted: Any) -> None:
    one = Agent("typed", model=ScriptedModel(["That is hard to say.", said]), output=output)

    async with Runtime("memory:") as runtime:
        run = await runtime.start(one, "Look.")
        result = await run.result()
        again = await (await runtime.get(run.id)).result()

    assert result == again == wanted
    assert type(result) is type(wanted)


def test_a_model_is_told_the_object_itself_and_no_reference_to_it() -> None:
    """What providers take as the root of a schema."""
    for output in (Model, Page, Struct):
        schema = OutputType(output).schema
        assert schema["type"] == "object"
        assert "$ref" not in schema

    assert OutputType(Struct).schema["$defs"].keys() == {"Inner"}


class Tree(msgspec.Struct):
    below: list[Tree] = []


def test_a_type_that_refers_to_itself_keeps_its_definition() -> None:
    assert "Tree" in OutputType(Tree).schema["$defs"]
    assert OutputType(Tree).read('{"below": [{}]}') == Tree([Tree()])


@pytest.mark.parametrize("output", ["Model", {"type": "object"}, ["a"], 5])
def test_what_is_no_type_is_refused_when_the_agent_is_built(output: Any) -> None:
    with pytest.raises(MisuseError, match="is no type"):
        Agent("typed", model=ScriptedModel(["x"]), output=output)


async def test_a_result_that_no_longer_fits_its_agent_says_so(store: str) -> None:
    async with Runtime(store) as runtime:
        run = await runtime.start(Agent("typed", model=ScriptedModel(["7"]), output=int), "Look.")
        assert await run.result() == 7

    async with Runtime(store, agents=[Agent("typed", model=ScriptedModel(["x"]), output=Page)]) as runtime:
        with pytest.raises(MisuseError, match="The result that is recorded is no Page of agent typed"):
            await (await runtime.get(run.id)).result()


@agent
async def give_page(ctx: Context, goal: str) -> Page:
    return Page(goal)


@agent
async def give_struct(ctx: Context, goal: str) -> Struct:
    return Struct(Inner(len(goal)))


@agent
async def give_something_else(ctx: Context, goal: str) -> Page:
    return {"no": "page"}  # type: ignore[return-value]


@agent
async def give_plain(ctx: Context, goal: str) -> dict[str, list[int]]:
    return {goal: [1]}


@agent
async def hand_on(ctx: Context, goal: str) -> list[Any]:
    page = await ctx.spawn(give_page, goal)
    answer = await ctx.model("Say.", model=ScriptedModel(['{"inner": {"x": 1}}']), output=Struct)
    return [page.url, answer.inner.x]


@pytest.mark.parametrize(
    ("program", "wanted"),
    [
        (give_page, Page("a")),
        (give_struct, Struct(Inner(1))),
        (give_something_else, {"no": "page"}),
        (give_plain, {"a": [1]}),
        (hand_on, ["a", 1]),
    ],
)
async def test_a_program_gives_a_value_of_the_type_that_it_says_it_returns(program: Any, wanted: Any) -> None:
    async with Runtime("memory:") as runtime:
        assert await (await runtime.start(program, "a")).result() == wanted
