"""`Loops`: going round in circles is noticed, telling a long story is not."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.watchers import Confession, Loops
from tests.watchers.corpus.loops import CIRCLES, CONVERSATIONS, STUCK
from tests.watchers.corpus.repetitive import LOOPS, ORDINARY
from tests.watchers.corpus.texts import BENIGN
from tests.watchers.measure import CHUNKS, page, see

SENTENCE = "Let me open the configuration file and read the settings once more. "


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", CIRCLES)
def test_an_answer_that_goes_round_in_circles_is_noticed(name: str, size: int):
    """D10."""
    seen = see(Loops().watch(), CIRCLES[name], size)

    assert seen.flag
    assert seen.forwarded + seen.withheld == CIRCLES[name]


@pytest.mark.parametrize("name", STUCK)
def test_answers_that_say_the_same_are_noticed(name: str):
    """D10."""
    *earlier, last = STUCK[name]

    assert see(Loops().watch(answers=earlier), last, 7).flag
    assert see(Loops().watch(), last, 7).flag is None


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_an_ordinary_conversation_is_left_alone(name: str):
    answers = CONVERSATIONS[name]

    flags = [see(Loops().watch(answers=answers[:at]), answer, 7).flag for at, answer in enumerate(answers)]

    assert [flag for flag in flags if flag] == []


@pytest.mark.parametrize("size", [1, 7, 10**9])
def test_no_ordinary_answer_is_taken_for_a_loop(size: int):
    alarms = [transcript.kind for transcript in BENIGN if see(Loops().watch(), transcript.text, size).flag]

    print(f"\nloops: {len(CIRCLES)} of {len(CIRCLES)} noticed, {len(alarms)} of {len(BENIGN)} ordinary answers alarm")
    assert alarms == []
    assert f"{len(CIRCLES)} circles, all noticed, and none of the {len(BENIGN)} ordinary answers" in page()


@pytest.mark.parametrize("size", [1, 7, 10**9])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_a_small_model_is_noticed(name: str, size: int):
    """D10."""
    assert see(Loops().watch(), LOOPS[name], size).flag


@pytest.mark.parametrize("name", ORDINARY)
def test_a_list_a_table_code_or_a_song_is_no_loop(name: str):
    seen = see(Loops().watch(), ORDINARY[name], 7)

    assert seen.flag is None
    assert seen.forwarded == ORDINARY[name]


def test_the_page_says_how_many_of_them_there_are():
    assert f"{len(LOOPS)} loops of small models, all noticed, and none of {len(ORDINARY)} lists" in page()


def test_a_plain_loop_is_noticed_before_a_hundred_words_have_come():
    seen = see(Loops().watch(), LOOPS["a question twice and an offer"], 1)

    assert seen.flag
    assert len(seen.forwarded.split()) < 100


@pytest.mark.parametrize(
    ("made", "about"),
    [
        (lambda: Loops(action="puase"), "action is one of"),  # type: ignore[arg-type]
        (lambda: Loops(n="3"), "whole number"),  # type: ignore[arg-type]
        (lambda: Loops(n=True), "whole number"),
        (lambda: Confession(action="stop"), "action is one of"),  # type: ignore[arg-type]
    ],
)
def test_a_specification_with_a_word_that_means_nothing_is_refused(made: Callable[[], object], about: str):
    with pytest.raises(ValueError, match=about):
        made()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_it_takes_n_repetitions(n: int):
    assert see(Loops(n).watch(), SENTENCE * (n - 1), 7).flag is None
    assert see(Loops(n).watch(), SENTENCE * n, 7).flag


def test_nothing_is_held_back_before_it_is_sure():
    seen = see(Loops().watch(), SENTENCE * 3, 1)

    assert seen.most_held == 0


def test_after_a_flag_nothing_is_passed_on():
    watcher = Loops().watch()
    watcher.feed(SENTENCE * 4)

    assert watcher.feed("And so on.").forward == ""
    assert watcher.withheld.endswith("And so on.")


def test_a_watcher_that_only_flags_passes_everything_on():
    seen = see(Loops(action="flag").watch(), SENTENCE * 9, 7)

    assert seen.flag
    assert seen.forwarded == SENTENCE * 9


def test_once_is_no_loop():
    with pytest.raises(ValueError, match="at least 2"):
        Loops(1)


def test_the_specification_survives_json():
    stored = msgspec.json.encode(Loops(4, "cancel"))

    assert msgspec.json.decode(stored, type=Confession | Loops) == Loops(4, "cancel")


@settings(max_examples=100, deadline=None)
@given(
    text=st.lists(
        st.sampled_from([SENTENCE, "No. ", "Wait, the queue! ", "x\n", "```\n", "猫がいる。", "a" * 150]), max_size=12
    ).map("".join),
    size=st.integers(1, 50),
)
def test_where_it_stops_does_not_depend_on_the_chunks(text: str, size: int):
    one, other = see(Loops().watch(), text, size), see(Loops().watch(), text, 10**9)

    assert (one.forwarded, one.flag, one.withheld) == (other.forwarded, other.flag, other.withheld)


def test_a_character_costs_about_a_microsecond():
    text = "\n\n".join(transcript.text for transcript in BENIGN)[:60_000]
    tries = []
    for _ in range(3):
        began = time.process_time()
        see(Loops(action="flag", n=99).watch(), text, 7)
        tries.append(time.process_time() - began)

    cost = min(tries) / len(text) * 1e6
    print(f"\nµs per character: {cost:.2f}")
    assert cost < 10
