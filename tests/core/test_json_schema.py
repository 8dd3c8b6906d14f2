"""Other arguments than a call asked for are compared with the schema of its tool before anybody approves them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from checkrein.agents.tool import Tool
from checkrein.core.json_schema import misfits


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    number: int = 1


def send(
    to: str,
    amount: Annotated[int, Field(ge=1, le=100)],
    colour: Colour = Colour.RED,
    speed: Literal["slow", "fast"] = "slow",
    addresses: list[Address] | None = None,
    weight: float = 1.0,
    extra: dict[str, int] | None = None,
    title: Annotated[str, Field(min_length=2, max_length=5)] = "none",
) -> None:
    """Send."""


SCHEMA = Tool(send).schema


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"amount": 100},
        {"weight": 3},
        {"colour": "blue", "speed": "fast"},
        {"addresses": [{"street": "A"}, {"street": "B", "number": 2}]},
        {"addresses": None},
        {"extra": {"a": 1}},
        {"title": "abcde"},
    ],
)
def test_what_the_tool_would_take_fits(change: dict[str, Any]) -> None:
    assert misfits({"to": "ann", "amount": 5, **change}, SCHEMA) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"to": 5}, "to is integer, not string"),
        ({"amount": "5"}, "amount is string, not integer"),
        ({"amount": True}, "amount is boolean, not integer"),
        ({"amount": 2.5}, "amount is number, not integer"),
        ({"amount": 2.0}, "amount is number, not integer"),
        ({"amount": 101}, "amount is more than 100"),
        ({"amount": 0}, "amount is less than 1"),
        ({"colour": "green"}, "colour is none of 'red', 'blue'"),
        ({"speed": "faster"}, "speed is none of 'slow', 'fast'"),
        ({"addresses": [{"number": 1}]}, "addresses[0].street is missing"),
        ({"addresses": [{"street": 1}]}, "addresses[0].street is integer, not string"),
        ({"extra": {"a": "b"}}, "extra.a is string, not integer"),
        ({"title": "a"}, "title is shorter than 2"),
        ({"too": "bob"}, "there is no too; there are: to, amount"),
    ],
)
def test_what_it_would_not_take_is_named(change: dict[str, Any], told: str) -> None:
    wrong = misfits({"to": "ann", "amount": 5, **change}, SCHEMA)

    assert len(wrong) == 1
    assert told in wrong[0]


def test_an_argument_that_is_missing_is_named() -> None:
    assert misfits({"to": "ann"}, SCHEMA) == ["amount is missing"]


@pytest.mark.parametrize(
    "schema", [{}, True, None, {"$ref": "https://elsewhere"}, {"$ref": "#/nowhere"}, {"type": "x"}]
)
def test_a_schema_that_says_nothing_known_lets_everything_pass(schema: Any) -> None:
    assert misfits({"a": [1, {"b": None}]}, schema) == []


def test_a_schema_that_leads_to_itself_comes_to_an_end() -> None:
    assert misfits({"a": 1}, {"$ref": "#"}) == []
