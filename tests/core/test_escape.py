"""Nothing from outside acts on a terminal, hides in it, or changes the order of what is read."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.cli.output import line_of
from checkrein.core.escape import one_line, printable

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a\\x0db"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("\x07\x08\x7f\x00", "\\x07\\x08\\x7f\\x00"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\u2028", "\\u2028"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("\u3164blank", "\\u3164blank"),
        ("\ud800", "\\ud800"),
        ("Grüße, 東京, 👍🏽, café", "Grüße, 東京, 👍🏽, café"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
    ],
)
def test_what_acts_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    """D16"""
    assert printable(text) == shown


@given(ANY_TEXT)
def test_nothing_that_acts_or_hides_is_left(text: str) -> None:
    for character in printable(text):
        assert character in "\n\t" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(ANY_TEXT)
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(ANY_TEXT)
def test_the_result_can_be_written_anywhere(text: str) -> None:
    printable(text).encode("utf-8")


@given(ANY_TEXT, st.integers(1, 50))
def test_one_line_is_one_line_and_not_longer_than_it_may_be(text: str, longest: int) -> None:
    line = one_line(text, longest)

    assert "\n" not in line
    assert len(line) <= longest


@given(st.text(max_size=200))
def test_json_for_programs_is_plain_ascii_too(text: str) -> None:
    line = line_of({"text": text})

    assert line.isascii()
    assert line.isprintable()
