"""Both wires: what a repaired history becomes is accepted, and what a strict provider refuses is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject

from checkrein.models import Message, repair
from checkrein.testing.provider import anthropic_rules, openai_rules
from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.wire import Refused, Terms
from tests.models import strict_provider as strict
from tests.models.strategies import FATES, HISTORIES, spoilt_histories, whole_histories

Rendered = list[dict[str, Any]]


class Wire(NamedTuple):
    render: Callable[[Sequence[Message]], Rendered]
    judge: Callable[[Rendered], None]
    refuse: Callable[[Incoming, Any, Terms], None]
    incoming: Incoming
    body: dict[str, Any]

    def refuses(self, messages: Rendered) -> bool:
        try:
            self.refuse(self.incoming, {**self.body, "messages": messages}, Terms("k", None))
        except Refused:
            return True
        return False

    def is_judged(self, messages: Rendered) -> bool:
        """Whether the judge refuses it, or cannot even read it."""
        try:
            self.judge(messages)
        except (strict.Refused, ValueError):
            return True
        return False


OPENAI = Wire(
    strict.as_openai,
    strict.judge_openai,
    openai_rules.refuse,
    Incoming("POST", "/v1/chat/completions", "", {"authorization": "Bearer k"}),
    {"model": "gpt-5"},
)
ANTHROPIC = Wire(
    strict.as_anthropic,
    strict.judge_anthropic,
    anthropic_rules.refuse,
    Incoming("POST", "/v1/messages", "", {"x-api-key": "k", "anthropic-version": "2023-06-01"}),
    {"model": "claude-haiku-4-5", "max_tokens": 2000},
)

on_both_wires = pytest.mark.parametrize("wire", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])


@on_both_wires
@given(messages=HISTORIES, fates=FATES)
def test_whatever_happened_a_repaired_history_is_accepted(wire: Wire, messages: list[Message], fates: Any):
    assert not wire.refuses(wire.render(repair(messages, fates)))


@on_both_wires
@given(messages=whole_histories() | spoilt_histories())
def test_it_is_as_strict_as_the_strictest_we_know(wire: Wire, messages: list[Message]):
    try:
        rendered = wire.render(messages)
    except ValueError:
        reject()  # arguments that are no text have no place on a wire

    assert wire.refuses(rendered) >= wire.is_judged(rendered)
