"""`Loops`: the output goes round in circles.

Four ways to do so are noticed within an answer: the same words over and over, however many they are; a few phrases in
whatever order, and hardly anything else; sentences that say the same, mixed with little else; and turning back
("Actually, …", "Wait, …") again and again to what the turn before had left. Between answers: saying the same as before,
also every other time.

Sentences of a stream, as soon as they are over, and what is left of them to compare.

A sentence ends with its punctuation and a space, with a line break, or after `LONGEST` characters: a text without full
stops is looked at too.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from checkrein.watchers.base import Action, Fed, Flag, check_action

LONGEST: Final = 400

FEWEST_WORDS: Final = 3
"""With fewer words of its own than this a sentence may well be said again: "Let me look at the next one."."""

_END: Final = re.compile(r"(?<=[.!?…:])\s|\n|(?<=[。！？])")
_TOKEN: Final = re.compile(r"[㐀-鿿぀-ヿ]|[^\W㐀-鿿぀-ヿ]+|[^\w\s]")
_FULL_STOP: Final = re.compile(r"""[.!?…。！？][\s"'*_)”’»]*\Z""")
_SYMBOL: Final = re.compile(r"[^\w\s.,!?'’…–—。、，！？-]|_|[.,](?=\w)")
_CODE: Final = 0.1
"""With more symbols than this it is not prose."""

# fmt: off
_FILLER_WORDS: Final = """
    a about above actually after again all alright also alternatively although am an and any are as at back be because
    been before being better both but by can come could d did do does doesn doing don done each either else even ever
    every few for from further get give go going gonna good had has have having he her here hers him his hmm how
    however i if in instead into is isn it its itself just keep know let like ll look m make maybe me might more most
    much must my need needs next no nope not now of off oh ok okay on once one only or original other our out over own
    perhaps please probably quite rather re really right same say see shall she should since so some still such
    sure take than that the their them then there these they thing think this those though thought through time to
    too try under until up us use very ve wait want was way we well were what when where whether which while who whom
    why will with would yeah yes yet you your
"""
_FILLERS: Final = frozenset(_FILLER_WORDS.split())
"""Words that come and go while a thought stays the same."""

_REVERSALS: Final = re.compile(
    r"""\W*(?:(?:but|hmm|ok|okay|oh|and|so|well)\b\W*)*
    (?:wait|actually|no(?=\s?[,.;:!—–-])|hmm|on\ second\ thoughts?|then\ again|scratch\ that|alternatively|instead
    |let\ me\ (?:reconsider|rethink)|(?:going|go)\ back\ to|back\ to|let's\ go\ back|i\ changed\ my\ mind
    |never\ ?mind|hold\ on)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# fmt: on


class Sentence(msgspec.Struct, frozen=True):
    """A sentence, and where it ended."""

    end: int
    tokens: tuple[str, ...]
    """Its words and its punctuation; every ideograph is a word."""
    own: frozenset[str]
    """The words that carry what it says."""
    letters: int
    code: bool
    """Inside a code block, or with so many symbols that it is a table, code or data."""
    whole: bool
    """It ended like a sentence, not like a line."""
    turns_back: bool
    """It takes back what was said before: "Actually, …"."""

    @property
    def says(self) -> frozenset[str] | None:
        """What it says, the same for two sentences that say the same. None if it says too little to tell."""
        return self.own if self.whole and not self.code and len(self.own) >= FEWEST_WORDS else None


class Sentences:
    """Cuts a stream into sentences. `rest` is the one that has begun and is not over."""

    def __init__(self) -> None:
        self._open = ""
        self._end = 0
        self._in_code_block = False

    def read(self, text: str) -> Iterator[Sentence]:
        seen = len(self._open)
        self._open += text
        while (length := self._ends(seen)) is not None:
            piece, self._open = self._open[:length], self._open[length:]
            seen = 0
            self._end += length
            yield self._sentence(piece)

    def rest(self) -> Sentence:
        piece, self._open = self._open, ""
        self._end += len(piece)
        return self._sentence(piece)

    def _ends(self, seen: int) -> int | None:
        """How long the sentence is that comes first, if it is over. None of the first `seen` characters ended it."""
        found = _END.search(self._open, seen)
        if found and found.end() <= LONGEST:
            return found.end()
        if len(self._open) < LONGEST:
            return None
        space = self._open.rfind(" ", 1, LONGEST)
        return LONGEST if space < 0 else space

    def _sentence(self, piece: str) -> Sentence:
        if piece.lstrip().startswith("```"):
            self._in_code_block = not self._in_code_block
        tokens = tuple(_TOKEN.findall(piece.lower()))
        words = frozenset(filter(str.isalnum, tokens))
        return Sentence(
            end=self._end,
            tokens=tokens,
            own=words - _FILLERS,
            letters=sum(map(str.isalpha, piece)),
            code=self._in_code_block or len(_SYMBOL.findall(piece)) > _CODE * len(piece),
            whole=_FULL_STOP.search(piece) is not None,
            turns_back=_REVERSALS.match(piece) is not None,
        )


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

FEWEST_LETTERS: Final = 50
"""Fewer repeated letters than this are not worth a stop: a cheer, a row of a table."""

GRAM_TOKENS: Final = 4
REPEATED_SHARE: Final = 0.6
"""So much of what was said since must have been said before: a song has verses between its choruses, a loop has not."""

MANY: Final = 10
"""Code, data and single words are repeated for good reasons: they are a loop only after so many times as often."""

WINDOW_WORDS: Final = 20
"""Times `n`: how many of the latest words are looked at for phrases that come again."""

NEW_SHARE: Final = 0.3
"""With fewer distinct phrases than this it says nothing new. Loops have 0.27 at most, songs and code 0.47 at least."""

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
        check_action(self, self.action)
        if type(self.n) is not int:
            raise ValueError(f"Loops(n={self.n!r}): n is a whole number of repetitions, at least 2.")
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
        self._noticing = (_SameWords(n), _SamePhrases(n), _SameSentences(n), _BackAndForth(n), _SameAnswers(n, answers))
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


class _SamePhrases:
    """Few distinct phrases among the latest words, in whatever order they come: a loop without a period.

    Numbers stand in rows for good reasons, and so does code, of which not every line looks like it. There it has to
    last longer.
    """

    def __init__(self, n: int) -> None:
        self._window = WINDOW_WORDS * n
        self._words: deque[str] = deque(maxlen=GRAM_TOKENS)
        self._phrases: deque[tuple[str, ...]] = deque()
        self._times: dict[tuple[str, ...], int] = {}
        self._count = 0
        self._code_until = 0
        """So many words must have come before what is said counts as prose again."""
        self._in_letters = 0
        """How many of the phrases are not of bare numbers."""
        self._lasts = 0
        """For how many words it has said nothing new."""

    def read(self, sentence: Sentence) -> str:
        if sentence.tokens[1:] == (".",) and sentence.tokens[0].isdecimal():
            return ""  # the number of a list's item, which makes nothing new of it
        if sentence.code:
            self._code_until = self._count + self._window
        for token in sentence.tokens:
            if token.isalnum():
                self._add(token)
                if self._lasts > self._bearable():
                    share = len(self._times) / len(self._phrases)
                    return f"repeats itself: {share:.0%} of its last {len(self._phrases)} phrases are distinct"
        return ""

    def end(self) -> str:
        return ""

    def _bearable(self) -> int:
        if self._count < self._code_until:
            return self._window * (MANY - 1)
        return 0 if 2 * self._in_letters >= len(self._phrases) else self._window * 2

    def _add(self, word: str) -> None:
        self._count += 1
        self._words.append(word)
        if len(self._words) < GRAM_TOKENS:
            return
        phrase = tuple(self._words)
        self._phrases.append(phrase)
        self._times[phrase] = self._times.get(phrase, 0) + 1
        self._in_letters += not _is_number(phrase)
        if len(self._phrases) > self._window - GRAM_TOKENS:
            is_new = len(self._times) > NEW_SHARE * len(self._phrases)
            self._lasts = 0 if is_new else self._lasts + 1
            self._forget(self._phrases.popleft())

    def _forget(self, phrase: tuple[str, ...]) -> None:
        self._in_letters -= not _is_number(phrase)
        if self._times[phrase] == 1:
            del self._times[phrase]
        else:
            self._times[phrase] -= 1


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


def _is_number(phrase: tuple[str, ...]) -> bool:
    return all(map(str.isdecimal, phrase))


def _said(sentence: Sentence) -> Hashable:
    return sentence.says or sentence.tokens


def _all_said(answer: str) -> frozenset[Hashable]:
    sentences = Sentences()
    return frozenset(_said(sentence) for sentence in (*sentences.read(answer), sentences.rest()))
