"""Schemas of answers, as far as the Anthropic wire takes them; the real client's own conversion is the judge."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal, Union

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from checkrein.models import as_json
from checkrein.models.anthropic.request import closed_schema, schema_in_words


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Cow(BaseModel):
    kind: Literal["cow"]
    milk: float | None = None


class Sheep(BaseModel):
    kind: Literal["sheep"]
    wool: Annotated[int, Field(ge=0, le=100)]


class Farm(BaseModel):
    """All that lives there."""

    name: Annotated[str, Field(min_length=2, description="As on the gate")]
    since: Annotated[str, Field(json_schema_extra={"format": "date"})]
    level: Level
    animals: list[Annotated[Union[Cow, Sheep], Field(discriminator="kind")]]  # noqa: UP007
    names: Annotated[list[str], Field(min_length=1, max_length=5)]
    owner: str | None = None


class Tree(BaseModel):
    branches: list[Tree] = []


class Forest(BaseModel):
    first: Tree


class Open(BaseModel):
    counts: dict[str, int]


class Anything(BaseModel):
    value: Any


class Pair(BaseModel):
    both: tuple[int, str]


def schema_of(type):
    return TypeAdapter(type).json_schema()


def bare(schema):
    """Without the words in it: how a limit is put is a matter of taste."""
    if isinstance(schema, dict):
        # Words can also be the name of a property, which is then no text.
        return {key: bare(value) for key, value in schema.items() if key != "description" or not isinstance(value, str)}
    return [bare(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("type", [Farm, Cow, Sheep])
def test_a_schema_is_closed_as_the_real_client_closes_it(type):
    from anthropic import transform_schema

    schema = schema_of(type)

    assert bare(closed_schema(as_json(schema))) == bare(transform_schema(schema))


def test_what_the_wire_does_not_know_is_told_in_words():
    made = closed_schema(as_json(schema_of(Farm)))

    assert made is not None
    assert made["properties"]["name"]["description"] == "As on the gate (minLength: 2)"
    assert made["properties"]["names"]["description"] == "(maxItems: 5)"
    assert made["$defs"]["Sheep"]["properties"]["wool"]["description"] == "(maximum: 100, minimum: 0)"


@pytest.mark.parametrize("type", [Tree, Forest, Open, Anything, Pair, list[int], int, Union[Cow, Sheep]])  # noqa: UP007
def test_what_cannot_be_said_there_is_left_to_an_instruction(type):
    schema = as_json(schema_of(type))

    assert closed_schema(schema) is None
    assert bytes(schema).decode() in schema_in_words(schema)
