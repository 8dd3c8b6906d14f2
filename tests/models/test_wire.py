"""Events of an answer that have come together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from checkrein.models.base import Collector, Delta, Finish, Finished, TextDelta, ThinkingDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.openai import DONE, OpenAIReader
from checkrein.models.wire import read_together


def said(**delta: Any) -> bytes:
    return msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]})


END = msgspec.json.encode({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def test_text_of_events_that_came_together_is_one_piece_and_its_order_with_the_rest_is_kept() -> None:
    events = [said(content="I"), said(content=" see"), said(reasoning="hm"), said(content=" it."), END]

    deltas = list(read_together(OpenAIReader(), events))

    assert deltas == [TextDelta("I see"), ThinkingDelta("hm"), TextDelta(" it."), Finished(Finish.STOP)]


def test_events_together_and_one_by_one_are_the_same_answer() -> None:
    words = [said(content=word) for word in ("I", " see", " it.")]
    events = [*words, said(reasoning="hm"), END, DONE, said(content="!")]
    together, apart, reader = Collector(), Collector(), OpenAIReader()

    for delta in read_together(OpenAIReader(), events):
        together.add(delta)
    for event in events[:-1]:
        for delta in reader.read(event):
            apart.add(delta)

    assert together.reply() == apart.reply()


@pytest.mark.parametrize("broken", [b"{", msgspec.json.encode({"error": {"message": "overloaded"}})])
def test_what_came_before_an_event_that_cannot_be_read_is_given_before_that_is_raised(broken: bytes) -> None:
    deltas: list[Delta] = []

    with pytest.raises((msgspec.DecodeError, ErrorInStream)):
        for delta in read_together(OpenAIReader(), [said(content="I"), said(content=" see"), broken]):
            deltas.append(delta)

    assert deltas == [TextDelta("I see")]
