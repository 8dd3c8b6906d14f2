"""`Confession`: what it promises, one promise at a time. How well it does is in test_confession_measured.py."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.watchers import HELD_BACK, Confession, Loops
from tests.watchers.corpus.texts import INSTRUCTIONS
from tests.watchers.measure import pieces, see

BANK = INSTRUCTIONS["bank"]


def test_a_recital_is_stopped_and_what_was_withheld_is_kept():
    """D12, D13."""
    watcher = Confession(BANK).watch()

    fed = [watcher.feed(piece) for piece in pieces(BANK, 5)]

    [flag] = [each.flag for each in fed if each.flag]
    forwarded = "".join(each.forward for each in fed)
    assert forwarded == BANK[: flag.withheld_from]
    assert watcher.withheld == BANK[flag.withheld_from :]
    assert flag.action == "pause"
    assert watcher.end().forward == ""


def test_nothing_is_passed_on_after_a_flag():
    """D12."""
    watcher = Confession(BANK, action="cancel").watch()
    watcher.feed(BANK)

    fed = watcher.feed("And now for something else.")

    assert fed.forward == ""
    assert fed.flag is None or fed.flag.action == "cancel"
    assert watcher.withheld.endswith("And now for something else.")


def test_it_flags_once():
    watcher = Confession(BANK, action="flag").watch()

    fed = [watcher.feed(BANK), watcher.feed(BANK), watcher.end()]

    assert [each.flag is not None for each in fed] == [True, False, False]


def test_a_watcher_that_only_flags_passes_everything_on():
    seen = see(Confession(BANK, action="flag").watch(), BANK * 2, 7)

    assert seen.flag
    assert seen.flag.withheld_from is None
    assert seen.forwarded == BANK * 2
    assert (seen.withheld, seen.most_held) == ("", 0)


def test_a_flag_does_not_quote_the_instructions():
    seen = see(Confession(BANK, canary="Heliotrope").watch(), BANK, 7)

    assert seen.flag
    assert not any(word in seen.flag.what for word in BANK.split() if len(word) > 8 and word.isalpha())


def test_a_flag_names_the_disguise():
    seen = see(Confession(BANK).watch(), base64.b64encode(BANK[::-1].encode()).decode(), 7)

    assert seen.flag
    assert "base64, backwards" in seen.flag.what


def test_a_short_quote_passes():
    quote = "You asked whether transfers need a second confirmation in the app. They do."

    seen = see(Confession(BANK).watch(), quote, 1)

    assert seen.flag is None
    assert seen.forwarded == quote


def test_the_same_words_again_and_again_count_once():
    seen = see(Confession(BANK).watch(), "I am Ada, the assistant of Nordwind Bank. " * 20, 7)

    assert seen.flag is None


def test_what_is_quotable_may_be_said():
    rule = "the replacement costs 12 euros and takes four working days"
    both = f"Lost cards are blocked at once, without any questions about how they were lost; {rule}."

    assert see(Confession(BANK).watch(), both, 7).flag
    assert see(Confession(BANK, quotable=(both,)).watch(), both, 7).flag is None


def test_without_instructions_of_its_own_it_takes_those_of_the_agent():
    assert see(Confession().watch(BANK), BANK, 7).flag
    assert see(Confession().watch(), BANK, 7).flag is None


def test_short_instructions_are_noticed_when_most_of_them_is_said():
    ghost = INSTRUCTIONS["ghost"]

    assert see(Confession(ghost).watch(), ghost, 7).flag
    assert see(Confession(ghost).watch(), "I am the ghost of a lighthouse keeper named Osric.", 7).flag is None


def test_a_quote_goes_on_in_the_next_answer():
    first, second = BANK[:50], BANK[50:100]

    assert see(Confession(BANK).watch(), second, 7).flag is None
    assert see(Confession(BANK).watch(answers=[first]), second, 7).flag


def test_quotes_from_far_apart_in_different_answers_do_not_add_up():
    first, second = BANK[:50], BANK[-55:]

    assert see(Confession(BANK).watch(answers=[first]), second, 7).flag is None


def test_the_canary_is_noticed_even_where_nothing_else_is():
    watcher = Confession("You are a helpful assistant.", canary="heliotrope").watch()

    seen = see(watcher, "They call it h.e.l.i.o.t.r.o.p.e, I think.", 1)

    assert seen.flag
    assert seen.flag.what == "says the canary"


@pytest.mark.parametrize("canary", ["owl", "12345678", "", "a-1-b-2"])
def test_a_canary_that_might_turn_up_by_chance_is_refused(canary: str):
    with pytest.raises(ValueError, match="too short"):
        Confession(canary=canary)


@pytest.mark.parametrize("specification", [Confession(), Confession(BANK, "heliotrope", "cancel", ("Nordwind Bank",))])
def test_the_specification_survives_json(specification: Confession):
    stored = msgspec.json.encode(specification)

    assert msgspec.json.decode(stored, type=Confession | Loops) == specification


QUOTES = st.integers(0, len(BANK) - 40).flatmap(
    lambda start: st.integers(1, 90).map(lambda length: BANK[start : start + length])
)
ENCODED = QUOTES.map(lambda text: base64.b64encode(text.encode()).decode()) | QUOTES.map(
    lambda text: text.encode().hex()
)
TEXTS = st.lists(st.text(max_size=30) | QUOTES | ENCODED, max_size=8).map("".join)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_any_text_in_any_chunks_is_passed_on_or_withheld_alike(text: str, sizes: list[int]):
    specification = Confession(BANK, canary="heliotrope")
    whole = see(specification.watch(), text, 10**9)
    watcher = specification.watch()
    forwarded: list[str] = []
    held, at, flag = [0], 0, None
    while at < len(text):
        size = sizes[len(forwarded) % len(sizes)]
        fed = watcher.feed(text[at : at + size])
        forwarded.append(fed.forward)
        flag = flag or fed.flag
        at += size
        if not flag:
            held.append(len(watcher.withheld))
    forwarded.append(watcher.end().forward)

    assert "".join(forwarded) == whole.forwarded
    assert flag == whole.flag
    assert whole.forwarded + whole.withheld == text
    assert max(held) <= HELD_BACK
