"""The text of a call: whatever becomes of its pieces on their way, it is the same text."""

from __future__ import annotations

import sys
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from checkrein.journal.base import Chunk
from checkrein.journal.chunks import TextAssembler, joined


@st.composite
def pieces_of_a_text(draw: st.DrawFn) -> tuple[str, list[Chunk], list[bool]]:
    """A text; pieces that cover it, overlapping, repeated, in any order; and after which of them it is taken."""
    text = draw(st.text(max_size=60))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    cover = [Chunk("c1", start, text[start:end]) for start, end in pairwise(edges)]
    spans = draw(st.lists(st.tuples(st.integers(0, len(text)), st.integers(0, len(text))), max_size=6))
    more = [Chunk("c1", min(span), text[min(span) : max(span)]) for span in spans]
    pieces = draw(st.permutations(cover + more + draw(st.lists(st.sampled_from(cover), max_size=4))))
    return text, list(pieces), draw(st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)))


@given(pieces_of_a_text())
def test_any_order_and_repetition_of_pieces_gives_the_same_text(made: tuple[str, list[Chunk], list[bool]]) -> None:
    text, pieces, takes = made
    texts, taken = TextAssembler(), list[Chunk]()

    for piece, is_taken in zip(pieces, takes, strict=True):
        texts.add(piece)
        if is_taken and (chunk := texts.take("c1")) is not None:
            taken.append(chunk)
        assert text.startswith(texts.text("c1"))
        assert texts.length("c1") == len(texts.text("c1"))
    taken += [chunk for chunk in [texts.take("c1")] if chunk is not None]

    assert texts.text("c1") == text
    assert not texts.has_gap("c1")
    assert "".join(chunk.text for chunk in taken) == text
    assert [chunk.offset for chunk in taken] == [sum(len(one.text) for one in taken[:n]) for n in range(len(taken))]


@given(pieces_of_a_text(), st.integers(0, 20))
def test_a_text_that_is_told_at_its_end_is_taken_once_whatever_had_come_of_it(
    made: tuple[str, list[Chunk], list[bool]], come: int
) -> None:
    text, pieces, takes = made
    texts, taken = TextAssembler(), ""
    for piece, is_taken in zip(pieces[:come], takes, strict=False):
        texts.add(piece)
        if is_taken and (chunk := texts.take("c1")) is not None:
            taken += chunk.text

    texts.end("c1", text)
    for piece in pieces[come:]:
        assert not texts.add(piece)

    rest = texts.take("c1")
    assert taken + ("" if rest is None else rest.text) == text
    assert texts.take("c1") is None


def test_a_piece_that_comes_early_waits_and_is_a_gap_until_then() -> None:
    texts = TextAssembler()

    assert not texts.add(Chunk("c1", 4, "two "))
    assert texts.has_gap("c1")
    assert texts.take("c1") is None
    assert texts.add(Chunk("c1", 0, "one "))

    assert texts.take("c1") == Chunk("c1", 0, "one two ")
    assert not texts.has_gap("c1")


def test_texts_do_not_mix() -> None:
    texts = TextAssembler()
    for chunk in (Chunk("c1", 0, "one"), Chunk("c1#2", 0, "uno"), Chunk("c2", 0, "eins")):
        texts.add(chunk)

    assert [texts.text(stream) for stream in ("c1", "c1#2", "c2", "c3")] == ["one", "uno", "eins", ""]


def test_a_piece_is_never_copied_together_with_the_text_before_it() -> None:
    """Counted in calls and not in time: nothing in `add` may depend on how long the text is already."""
    texts = TextAssembler()
    sizes = []
    for n in range(20_000):
        texts.add(Chunk("c1", 5 * n, "word "))
        if n % 100 == 0:
            texts.take("c1")
            sizes.append(max(sys.getsizeof(part) for part in texts._texts["c1"].old))

    assert max(sizes) < 2_000
    assert texts.text("c1") == "word " * 20_000


def test_neighbouring_chunks_are_joined_and_others_are_not() -> None:
    chunks = [Chunk("c1", 0, "a"), Chunk("c1", 1, "b"), Chunk("c2", 0, "x"), Chunk("c1", 2, "c"), Chunk("c1", 9, "z")]

    assert joined(chunks) == [Chunk("c1", 0, "ab"), Chunk("c2", 0, "x"), Chunk("c1", 2, "c"), Chunk("c1", 9, "z")]
