"""Long texts for models that are to talk for a while: made of distinct phrases, since a loop would pause the run."""

from __future__ import annotations


def words(count: int) -> str:
    """`word1 word2 …`: each is a token of a scripted model."""
    return "".join(f"word{number} " for number in range(1, count + 1))


def sentences(count: int) -> str:
    """`Word 1 after the other. …`: five tokens each."""
    return "".join(f"Word {number} after the other. " for number in range(1, count + 1))
