"""What a person is shown is what was recorded, to the last digit, and a long value hides nothing but itself."""

from __future__ import annotations

import json

import msgspec
import pytest

from checkrein.control.call_view import SHOWN_CHARS, SHOWN_VALUES, decoded, shown_arguments, shown_value


@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "40817810099910004312", "100000000000000000001", "1e400", "-0", "-0.0", "1E+2", "0.10"],
)
@pytest.mark.parametrize("inside", ["{}", '{{"to":{}}}', "[1,{}]", '[{{"a":[{}]}}]'])
def test_a_number_is_shown_as_it_was_recorded(number: str, inside: str) -> None:
    value = inside.format(number)
    recorded = f'{{"account":{value},"to":"ann"}}'.encode()

    account, to = shown_arguments(recorded)

    assert (account.name, account.text, account.hidden) == ("account", value, 0)
    assert (to.name, to.text) == ("to", "ann")


def test_the_number_five_does_not_look_like_the_text_five() -> None:
    number, text = shown_arguments(b'{"a":5,"b":"5"}')

    assert (number.text, number.type) == ("5", "number")
    assert (text.text, text.type) == ("5", "string")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"{}", "object"),
        (b"[]", "array"),
        (b"true", "boolean"),
        (b"false", "boolean"),
        (b"null", "null"),
        (b"-1", "number"),
    ],
)
def test_every_kind_of_value_says_what_it_is(value: bytes, kind: str) -> None:
    (shown,) = shown_arguments(b'{"a":%b}' % value)

    assert (shown.type, shown.text) == (kind, value.decode())


def test_a_text_is_shown_as_the_text_that_it_is() -> None:
    (shown,) = shown_arguments(json.dumps({"body": 'two\n"lines" é'}).encode())

    assert shown.text == 'two\n"lines" é'


def test_half_of_a_character_is_shown_as_it_was_recorded() -> None:
    shown = shown_value(rb'"\ud800!"')

    assert shown.text == r'"\ud800!"'
    assert msgspec.json.encode(shown)


def test_a_long_argument_hides_only_itself_and_says_how_much() -> None:
    body = "x" * (SHOWN_CHARS + 500)
    recorded = msgspec.json.encode({"body": body, "to": "attacker@evil.example", "cc": ["é" * SHOWN_CHARS]})

    long, to, cc = shown_arguments(recorded)

    assert (long.name, len(long.text), long.hidden) == ("body", SHOWN_CHARS, 500)
    assert (to.name, to.text, to.hidden) == ("to", "attacker@evil.example", 0)
    assert (cc.name, len(cc.text), cc.hidden) == ("cc", SHOWN_CHARS, 4)


def test_nothing_is_hidden_from_who_asks_for_all_of_it() -> None:
    body = "x" * 1_000_000

    (whole,) = shown_arguments(msgspec.json.encode({"body": body}), longest=None)

    assert (whole.text, whole.hidden) == (body, 0)


def test_of_very_many_arguments_the_rest_is_counted() -> None:
    recorded = msgspec.json.encode({f"n{number}": "ab" for number in range(SHOWN_VALUES + 30)})

    *shown, rest = shown_arguments(recorded)

    assert len(shown) == SHOWN_VALUES
    assert "30 more" in rest.name
    assert rest.hidden > 30 * 2


@pytest.mark.parametrize("nothing", [None, b"null", b"{}"])
def test_no_arguments_are_none(nothing: bytes | None) -> None:
    assert shown_arguments(nothing) == ()


def test_what_is_no_object_is_one_value_without_a_name() -> None:
    (shown,) = shown_arguments(b"[1,2]")

    assert (shown.name, shown.text) == ("", "[1,2]")


def test_a_result_is_shown_whatever_it_is() -> None:
    assert shown_value(b"40817810099910004312").text == "40817810099910004312"
    assert shown_value(b'"sent"').text == "sent"


def test_a_number_that_no_program_can_hold_does_not_keep_a_run_from_being_looked_at() -> None:
    assert decoded(b'{"a":1e400}') == {"a": float("inf")}
