"""`Loops`: the output goes round in circles.

Three ways to do so are noticed within an answer: the same words over and over, however many they are; sentences that
say the same, mixed with little else; and turning back ("Actually, …", "Wait, …") again and again to what the turn
before had left. Between answers: saying the same as before, also every other time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from checkrein.agents.watchers.contract import Action, Fed, Flag
from checkrein.agents.watchers.sentences import Sentence, Sentences

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

FEWEST_LETTERS: Final = 50
"""Fewer repeated letters than this are not worth a stop: a cheer, a row of a table."""

GRAM_TOKENS: Final = 4
REPEATED_SHARE: Final = 0.6
"""So much of what was said since must have been said before: a song has verses between its choruses, a loop has not."""

MANY: Final = 10
"""Code, data and single words are repeated for good reasons: they are a loop only after so many times as often."""

SAME_SHARE: Final = 0.9
SAME_LETTERS: Final = 60
"""Two answers are the same if so much of one stands in the other, of at least so many letters."""

SOON_LETTERS: Final = 200
"""After so many letters an answer is compared with earlier ones without waiting for its end."""

REMEMBERED: Final = 2048


class Loops(msgspec.Struct, frozen=True, tag_field="watch", tag="loops", omit_defaults=True):
    """Notice output that says the same `n` times, or goes back and forth without getting anywhere."""

    n: int = 3
    action: Action = "pause"

    def __post_init__(self) -> None:
        if self.n < 2:
            raise ValueError(f"Loops({self.n}): what is said once is no loop; n is at least 2.")

    def watch(self, instructions: str = "", answers: Sequence[str] = ()) -> LoopsWatcher:
        """A watcher for one call. Only the last `2 * n` answers are looked at."""
        return LoopsWatcher(self.n, answers[-2 * self.n :], self.action)


class LoopsWatcher:
    """Reads one answer, sentence by sentence. It holds nothing back: a repetition does no harm until it is one."""

    def __init__(self, n: int, answers: Sequence[str] = (), action: Action = "pause") -> None:
        self.withheld = ""
        self._action = action
        self._sentences = Sentences()
        self._noticing = (_SameWords(n), _SameSentences(n), _BackAndForth(n), _SameAnswers(n, answers))
        self._read = 0
        self._flag: Flag | None = None

    def feed(self, text: str) -> Fed:
        if self._flag:
            return self._after_flag(text)
        start = self._read
        self._read += len(text)
        for sentence in self._sentences.read(text):
            for notice in self._noticing:
                if what := notice.read(sentence):
                    return self._stop(what, text, max(sentence.end - start, 0), sentence.end)
        return Fed(text)

    def end(self) -> Fed:
        if self._flag:
            return Fed("")
        sentence = self._sentences.rest()
        for notice in self._noticing:
            if what := notice.read(sentence) or notice.end():
                return self._stop(what, "", 0, sentence.end)
        return Fed("")

    def _stop(self, what: str, text: str, cut: int, offset: int) -> Fed:
        if self._action == "flag":
            self._flag = Flag("loops", what, offset, self._action)
            return Fed(text, self._flag)
        self.withheld = text[cut:]
        self._flag = Flag("loops", what, offset, self._action, offset)
        return Fed(text[:cut], self._flag)

    def _after_flag(self, text: str) -> Fed:
        if self._action == "flag":
            return Fed(text)
        self.withheld += text
        return Fed("")


class _Recent(Generic[_K, _V]):
    """A dictionary that remembers at least its last `REMEMBERED` entries and at most twice as many."""

    def __init__(self) -> None:
        self._new: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        return self._new.get(key, self._old.get(key))

    def put(self, key: _K, value: _V) -> None:
        if len(self._new) >= REMEMBERED:
            self._old, self._new = self._new, {}
        self._new[key] = value


class _SameWords:
    """The same words in the same order, one round after the other: of a word, of a sentence, of whole paragraphs."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._last: _Recent[tuple[str, ...], int] = _Recent()
        self._tokens: deque[str] = deque(maxlen=GRAM_TOKENS)
        self._count = 0
        self._period = 0
        self._matched = 0
        self._letters = 0

    def read(self, sentence: Sentence) -> str:
        for token in sentence.tokens:
            self._read(token)
            many = sentence.code or self._period < GRAM_TOKENS
            times = self._n * MANY if many else self._n
            if self._period and self._matched >= (times - 1) * self._period and self._letters >= FEWEST_LETTERS:
                return f"repeats itself: the same {self._period} words and signs, {times} times"
        return ""

    def end(self) -> str:
        return ""

    def _read(self, token: str) -> None:
        self._tokens.append(token)
        gram = tuple(self._tokens)
        last = self._last.get(gram) if len(gram) == GRAM_TOKENS else None
        period = 0 if last is None else self._count - last
        if period and period == self._period:
            self._matched += 1
            self._letters += _letters(token)
        else:
            self._period = period
            self._matched = GRAM_TOKENS
            self._letters = sum(map(_letters, gram))
        self._last.put(gram, self._count)
        self._count += 1


class _SameSentences:
    """Sentences that say the same, with little else between them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._said: _Recent[frozenset[str], deque[tuple[int, int]]] = _Recent()
        self._letters = 0
        self._repeated = 0

    def read(self, sentence: Sentence) -> str:
        says = sentence.says
        before = (self._letters, self._repeated)
        self._letters += sentence.letters
        if says is None:
            return ""
        times = self._said.get(says)
        if times is None:
            times = deque(maxlen=self._n)
        else:
            self._repeated += sentence.letters
        times.append(before)
        self._said.put(says, times)
        if len(times) < self._n or self._repeated - times[0][1] < FEWEST_LETTERS:
            return ""
        since = self._letters - times[0][0]
        if self._repeated - times[0][1] < REPEATED_SHARE * since:
            return ""
        return f"repeats itself: says the same {self._n} times, with little else between"

    def end(self) -> str:
        return ""


class _BackAndForth:
    """Turning back to what the turn before had left, `n` times in a row."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._turns: deque[frozenset[str]] = deque(maxlen=2)
        self._returns = 0

    def read(self, sentence: Sentence) -> str:
        if not sentence.turns_back or sentence.code:
            return ""
        if len(self._turns) == 2:
            left, latest = self._turns
            returned = sentence.own & left - latest
            self._returns = self._returns + 1 if returned else 0
        self._turns.append(sentence.own)
        return f"goes back and forth: {self._n} returns to what it had left" if self._returns >= self._n else ""

    def end(self) -> str:
        return ""


class _SameAnswers:
    """Saying what `n - 1` of the earlier answers said, and nothing else."""

    def __init__(self, n: int, answers: Sequence[str]) -> None:
        self._n = n
        self._answers = [_all_said(answer) for answer in answers] if len(answers) >= n - 1 else []
        self._same = [0] * len(self._answers)
        self._letters = 0

    def read(self, sentence: Sentence) -> str:
        if not self._answers:
            return ""
        self._letters += sentence.letters
        for at, answer in enumerate(self._answers):
            if _said(sentence) in answer:
                self._same[at] += sentence.letters
        return self._compare() if self._letters >= SOON_LETTERS else ""

    def end(self) -> str:
        return self._compare() if self._letters >= SAME_LETTERS else ""

    def _compare(self) -> str:
        same = sum(letters >= SAME_SHARE * self._letters for letters in self._same)
        if same < self._n - 1:
            return ""
        return f"repeats itself: says the same as {same} of the last {len(self._answers)} answers"


def _letters(token: str) -> int:
    return len(token) if token.isalpha() else 0


def _said(sentence: Sentence) -> Hashable:
    return sentence.says or sentence.tokens


def _all_said(answer: str) -> frozenset[Hashable]:
    sentences = Sentences()
    return frozenset(_said(sentence) for sentence in (*sentences.read(answer), sentences.rest()))
