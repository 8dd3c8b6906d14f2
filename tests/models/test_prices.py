"""What a model costs, judged by the library whose list it is."""

from __future__ import annotations

import subprocess
import sys

import pytest
from genai_prices import Usage as Theirs
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot

from checkrein.core.conditions import Usage
from checkrein.models.prices import cost_of

USED = (
    Usage(input_tokens=1200, output_tokens=80),
    Usage(input_tokens=1200, output_tokens=80, cached_tokens=1000),
    Usage(input_tokens=1200, output_tokens=80, cached_tokens=500, cache_written_tokens=300),
    Usage(input_tokens=190_000, output_tokens=10),
    Usage(input_tokens=200_000, output_tokens=10, cached_tokens=150_000),
    Usage(input_tokens=900_000, output_tokens=20_000, cached_tokens=10),
)


def listed(provider: str) -> list[str]:
    return next([model.id for model in one.models] for one in get_snapshot().providers if one.id == provider)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "mistral", "deepseek", "groq"])
def test_every_listed_model_costs_what_the_list_says_with_what_was_read_from_a_cache(provider: str):
    compared = 0
    for model in listed(provider):
        for used in USED:
            asked = Theirs(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cache_read_tokens=used.cached_tokens or None,
                cache_write_tokens=used.cache_written_tokens or None,
            )
            try:
                said = float(calc_price(asked, model_ref=model, provider_id=provider).total_price)
            except (LookupError, ValueError):
                continue
            assert cost_of(f"{provider}:{model}", used) == pytest.approx(said), (model, used)
            compared += 1

    assert compared > 20


def test_what_was_read_from_a_cache_costs_less():
    plain = cost_of("openai:gpt-4o", Usage(input_tokens=1_000_000))
    cached = cost_of("openai:gpt-4o", Usage(input_tokens=1_000_000, cached_tokens=1_000_000))

    assert plain is not None
    assert cached is not None
    assert 0 < cached < plain


@pytest.mark.parametrize("model", ["openai:no-such-model", "nobody:gpt-4o", "mine"])
def test_a_model_that_is_not_listed_costs_an_unknown_amount_and_not_nothing(model: str):
    assert cost_of(model, Usage(input_tokens=10)) is None


@pytest.mark.parametrize("model", ["ollama:llama3", "scripted:demo"])
def test_a_model_on_ones_own_machine_costs_nothing(model: str):
    assert cost_of(model, Usage(input_tokens=10)) == 0.0


def test_the_price_list_is_not_read_before_it_is_needed():
    code = "import sys, checkrein, checkrein.models.openai; print('genai_prices' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.strip() == "False"
