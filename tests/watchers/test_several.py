"""Several watchers over one stream: all must agree to pass text on, one is enough to stop it."""

from __future__ import annotations

from checkrein.watchers import Confession, Fed, Flag, Loops, SeveralWatchers, Watching, watch
from checkrein.watchers.base import Action
from tests.watchers.corpus.texts import BENIGN, INSTRUCTIONS
from tests.watchers.measure import see

BANK = INSTRUCTIONS["bank"]
LOOP = "Let me open the configuration file and read the settings once more. "


class Holding:
    """Holds back the last `keep` characters, and flags at a given character."""

    def __init__(self, keep: int, at: int | None = None, action: Action = "flag") -> None:
        self.withheld = ""
        self._keep, self._at, self._action = keep, at, action
        self._read = 0

    def feed(self, text: str) -> Fed:
        pending = self.withheld + text
        cut = max(len(pending) - self._keep, 0)
        self.withheld = pending[cut:]
        before, self._read = self._read, self._read + len(text)
        if self._at is not None and before < self._at <= self._read:
            return Fed(pending[:cut], Flag("holding", "enough", self._at, self._action))
        return Fed(pending[:cut])

    def end(self) -> Fed:
        rest, self.withheld = self.withheld, ""
        return Fed(rest)


def test_what_one_holds_back_is_held_back():
    watchers = SeveralWatchers([Holding(0), Holding(5), Holding(2)])

    assert watchers.feed("0123456789").forward == "01234"
    assert watchers.withheld == "56789"
    assert watchers.feed("ab").forward == "56"
    assert watchers.end().forward == "789ab"


def test_none_at_all_pass_everything_on():
    assert see(SeveralWatchers([]), "anything", 3).forwarded == "anything"


def test_the_strongest_flag_of_a_chunk_wins_and_all_are_kept():
    watchers = SeveralWatchers([Holding(0, 3, "flag"), Holding(1, 4, "cancel"), Holding(0, 5, "pause")])

    fed = watchers.feed("0123456789")

    assert fed.flag
    assert (fed.flag.action, fed.flag.withheld_from, fed.forward) == ("cancel", 9, "012345678")
    assert [flag.action for flag in watchers.flags] == ["flag", "cancel", "pause"]


def test_after_a_stop_nothing_is_passed_on():
    """D12."""
    watchers = SeveralWatchers([Holding(4, 6, "pause")])
    watchers.feed("0123456")

    assert watchers.feed("789").forward == ""
    assert watchers.end().forward == ""
    assert watchers.withheld == "3456789"


def test_a_flag_that_asks_for_nothing_stops_nothing():
    seen = see(SeveralWatchers([Holding(3, 5, "flag")]), "0123456789", 2)

    assert seen.flag
    assert seen.forwarded == "0123456789"


def test_a_recital_and_a_loop_are_both_noticed_by_one_watcher():
    specifications: list[Watching] = [Confession(), Loops(action="cancel")]

    recital = see(watch(specifications, BANK), BANK, 7)
    loop = see(watch(specifications, BANK), LOOP * 9, 7)

    assert recital.flag
    assert recital.flag.watcher == "confession"
    assert loop.flag
    assert (loop.flag.watcher, loop.flag.action) == ("loops", "cancel")


def test_an_ordinary_answer_comes_through_whole():
    for transcript in BENIGN[::10]:
        assert see(watch([Confession(), Loops()], BANK), transcript.text, 7).forwarded == transcript.text
