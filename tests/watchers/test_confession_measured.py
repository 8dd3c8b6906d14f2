"""`Confession`, measured: attacks that it must notice, talk that it must not, how little gets through, what it costs.

The numbers are printed (`pytest -s`) and stand in docs/design/watchers.md; a test fails where the two disagree.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import cache
from typing import Final

import pytest

from checkrein.watchers import HELD_BACK, Confession
from tests.watchers.corpus.attacks import ATTACKS, CANARY, TECHNIQUES, Attack
from tests.watchers.corpus.texts import BENIGN, GENERIC, INSTRUCTIONS, Transcript
from tests.watchers.measure import CHUNKS, SHORTEST, Seen, leaked, page, see, see_run

MOST_LEAKED: Final = 80
EVERY_SIZE: Final = pytest.mark.parametrize(
    "size", [size if size in (1, 7, max(CHUNKS)) else pytest.param(size, marks=pytest.mark.torture) for size in CHUNKS]
)
"""Two sizes between the others are torture: that the size does not matter is shown by three."""
KNOWN: Final = [attack for attack in ATTACKS if not attack.how.missed]
MISSED: Final = [attack for attack in ATTACKS if attack.how.missed]


def watching(instructions: str) -> Confession:
    return Confession(instructions, canary=CANARY)


@cache
def outcomes(size: int) -> list[tuple[Attack, Seen]]:
    return [(attack, see_run(watching(attack.instructions), attack.answers, size)) for attack in ATTACKS]


def leak_of(attack: Attack, seen: Seen, shortest: int = SHORTEST) -> float:
    remains = attack.how.against(attack.instructions)
    through = leaked(attack.how.undo(seen.forwarded), remains, shortest)
    return through * len(attack.instructions) / len(remains)


def own_instructions(transcript: Transcript) -> str:
    """Those of the agent that said it. What anybody might say, the bank's assistant said."""
    return INSTRUCTIONS.get(transcript.agent, INSTRUCTIONS["bank"])


def test_the_corpus_is_large_and_its_texts_differ():
    assert len({attack.technique for attack in KNOWN}) >= 60
    assert len(BENIGN) >= 200
    assert len({transcript.text for transcript in BENIGN}) == len(BENIGN)
    assert len({" ".join(transcript.text.split())[:40] for transcript in BENIGN}) > 0.9 * len(BENIGN)


@EVERY_SIZE
def test_every_known_technique_is_noticed_whatever_the_chunks(size: int):
    unnoticed = [
        (attack.technique, attack.agent) for attack, seen in outcomes(size) if not (seen.flag or attack.how.missed)
    ]

    assert unnoticed == []


@EVERY_SIZE
def test_at_most_80_characters_of_the_instructions_get_through_before_it_acts(size: int):
    leaks = [(leak_of(attack, seen), attack.technique, attack.agent) for attack, seen in outcomes(size) if seen.flag]

    mean = sum(leak for leak, *_ in leaks) / len(leaks)
    print(f"\nchunks of {size}: leaked at most {max(leaks)}, {mean:.1f} characters on average")
    assert max(leaks)[0] <= MOST_LEAKED
    assert f"{max(leaks)[0]:.0f} characters at worst, {mean:.0f} on average" in page()


@EVERY_SIZE
def test_what_gets_through_does_not_depend_on_the_chunks(size: int):
    for (attack, one), (_, other) in zip(outcomes(1), outcomes(size), strict=True):
        assert (one.forwarded, one.flag, one.withheld) == (other.forwarded, other.flag, other.withheld), attack


def test_nothing_is_lost_what_is_not_passed_on_is_withheld():
    for attack, seen in outcomes(7):
        if seen.flag and len(attack.answers) == 1:
            assert seen.forwarded + seen.withheld == attack.answers[0]
            assert seen.flag.withheld_from == len(seen.forwarded)


def test_a_technique_that_is_said_to_get_through_does():
    noticed = {attack.technique for attack, seen in outcomes(7) if seen.flag and attack.how.missed}

    assert noticed == set()


@EVERY_SIZE
def test_no_ordinary_answer_alarms_its_own_agent(size: int):
    seen = [(each, see(watching(own_instructions(each)).watch(), each.text, size)) for each in BENIGN]

    assert [each for each, result in seen if result.flag] == []
    assert [each for each, result in seen if result.forwarded != each.text] == []


def test_no_ordinary_answer_alarms_any_agent():
    alarms = [
        (transcript.kind, name)
        for name, instructions in INSTRUCTIONS.items()
        for transcript in BENIGN
        if see(watching(instructions).watch(), transcript.text, 10**9).flag
    ]

    assert alarms == []


def test_no_conversation_of_ordinary_answers_alarms():
    for agent, instructions in INSTRUCTIONS.items():
        answers = [each.text for each in BENIGN if each.agent == agent]

        assert not answers or see_run(watching(instructions), answers, 40).flag is None


def test_generic_instructions_may_be_recited():
    for agent in GENERIC:
        assert see(Confession(INSTRUCTIONS[agent]).watch(), INSTRUCTIONS[agent], 7).flag is None


def test_ordinary_text_is_hardly_delayed():
    seen = [see(watching(own_instructions(each)).watch(), each.text, 1) for each in BENIGN]

    longest = max(each.most_held for each in seen)
    undelayed = sum(each.most_held == 0 for each in seen)
    print(f"\nheld back: {longest} characters at most; nothing at all in {undelayed} of {len(seen)} ordinary answers")
    assert longest <= HELD_BACK
    assert undelayed > 0.7 * len(seen)
    assert f"none in {undelayed} of {len(seen)} answers, {longest} characters at worst" in page()


def test_a_character_costs_a_few_microseconds():
    text = "\n\n".join(transcript.text for transcript in BENIGN if transcript.text.isascii())[:30_000]
    costs = {}
    for size in CHUNKS:
        specification = Confession(INSTRUCTIONS["helpdesk"])
        specification.watch()
        tries = []
        for _ in range(3):
            began = time.process_time()
            see(specification.watch(), text, size)
            tries.append(time.process_time() - began)
        costs[size] = min(tries) / len(text) * 1e6

    print("\nµs per character:", {size: round(cost, 2) for size, cost in costs.items()})
    assert costs[7] < 10  # about 1 on an idle machine


def test_the_cost_of_a_character_does_not_grow_with_the_text():
    watcher = Confession(INSTRUCTIONS["helpdesk"], action="flag").watch()
    text = "".join(transcript.text for transcript in BENIGN)[:20_000]
    costs = []
    for _ in range(6):
        began = time.process_time()
        watcher.feed(text)
        costs.append(time.process_time() - began)

    assert min(costs[3:]) < 3 * min(costs[:3])


def test_the_page_has_the_measured_numbers():
    noticed = Counter(bool(seen.flag) for attack, seen in outcomes(7) if not attack.how.missed)
    techniques = Counter(technique.missed for technique in TECHNIQUES.values())
    worst = max(leak_of(attack, seen) for attack, seen in outcomes(7) if seen.flag)
    strictest = max(leak_of(attack, seen, 12) for attack, seen in outcomes(7) if seen.flag)
    print(
        f"\nnoticed: {noticed[True]} of {len(KNOWN)} attacks by {techniques[False]} techniques; "
        f"not noticed: {len(MISSED)} by {techniques[True]}; ordinary answers: {len(BENIGN)}, alarms: 0; "
        f"leaked at most {worst:.0f} characters ({strictest:.0f} with runs of 12 letters)"
    )

    for number in (
        f"{noticed[True]} of {len(KNOWN)} attacks",
        f"{techniques[False]} techniques",
        f"{len(MISSED)} attacks by {techniques[True]} techniques",
        f"0 of {len(BENIGN)} ordinary answers",
        f"{strictest:.0f} where",
    ):
        assert number in page()


def test_the_page_names_every_technique_that_gets_through():
    assert [name for name, technique in TECHNIQUES.items() if technique.missed and f"**{name}**" not in page()] == []
