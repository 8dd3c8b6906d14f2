"""Every word of the core has its English, and the page can be given all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

import pytest

from checkrein.core import wording
from checkrein.core.enums import STOPS, TERMINAL, Answer, CallKind, EffectState, Outcome, Status


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (wording.STATUS_WORDS, Status),
        (wording.WHY_NOT, Status),
        (wording.OUTCOMES, Outcome),
        (wording.EFFECT_STATES, EffectState),
        (wording.ANSWERS, Answer),
        (wording.ANSWERED, Answer),
    ],
)
def test_no_word_is_missing(words: Mapping[StrEnum, str], kind: type[StrEnum]) -> None:
    assert set(words) == set(kind)


def test_every_end_and_every_stop_can_be_told() -> None:
    assert set(wording.TOO_LATE) == TERMINAL
    assert set(wording.ENDED) >= TERMINAL
    assert set(wording.STOPPED_BY) == STOPS
    assert set(wording.RECEIPT_HEADS) >= STOPS
    assert set(wording.STOPPED_CALLS) == {*Outcome, "held"}


def test_the_page_gets_every_word_as_plain_json() -> None:
    words = wording.words_for_page()

    assert json.loads(json.dumps(words)) == words
    assert words["statuses"]["pausing"] == "Pausing…"
    assert words["stopped_calls"]["held"] == "frozen where it is"
    assert words["receipt_heads"]["cancel"] == "Cancelled."
    assert all(type(key) is str for said in words.values() for key in said)


def test_a_model_that_is_stopped_is_closed_and_a_tool_aborted() -> None:
    assert wording.stopped_call(CallKind.MODEL, Outcome.ABORTED) == "closed"
    assert wording.stopped_call(CallKind.TOOL, Outcome.ABORTED) == "aborted"


@pytest.mark.parametrize(
    ("seconds", "said", "padded"),
    [(0, "0:00", "00:00"), (63, "1:03", "01:03"), (3_661, "1:01:01", "1:01:01"), (-1, "0:00", "00:00")],
)
def test_a_clock_shows_hours_only_when_there_are_some(seconds: float, said: str, padded: str) -> None:
    assert (wording.clock(seconds), wording.clock(seconds, padded=True)) == (said, padded)


@pytest.mark.parametrize(
    ("names", "said"), [("a", "a"), ("ab", "a and b"), ("aab", "a and b"), ("abcde", "a, b, c and 2 more")]
)
def test_names_are_listed_once_each_and_at_most_three(names: str, said: str) -> None:
    assert wording.listed(names) == said


def test_a_reason_that_was_recorded_under_a_former_name_is_called_as_people_say_now() -> None:
    """D14"""
    assert wording.reason_word("suspected confession") == "suspected disclosure"
    assert wording.reason_word("Suspected_Confession") == "suspected disclosure"
    assert wording.reason_word("too slow for me") == "too slow for me"
    assert set(wording.words_for_page()["reasons"].values()) == set(wording.REASONS)


def test_the_page_says_of_a_model_closed_before_its_first_token_only_what_is_known() -> None:
    said = wording.words_for_page()["receipt_phrases"]["before_first_token"]

    assert said == "Closed at our end; a provider may still be at work on the prompt."
