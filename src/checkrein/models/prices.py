"""What a model costs: by its name, from the price list of `genai-prices`. What is not listed is unknown, not free.

To ask that library takes 0.2 ms, which is a tenth of a step. Most prices are so much for a million of each kind of
token, so these are looked up once for each model; where a price depends on more, the library is asked each time.
"""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple

from checkrein.core.conditions import Usage

FREE: Final = frozenset({"ollama", "scripted"})
"""Providers that nobody is billed by: models on one's own machine."""

MILLION: Final = 1_000_000

LISTED_AS: Final = {"openai-responses": "openai", "gemini": "google"}
"""Whose prices are those of a provider that the list knows by another name."""


def cost_of(model: str, usage: Usage) -> float | None:
    """The price of `usage` in dollars for a model named `provider:model`; None when it is not known."""
    provider, _, name = model.partition(":")
    if provider in FREE or not usage.tokens:
        return 0.0
    if not name:
        return None  # a model that somebody made; the price list need not be read to know that it is not in it
    provider = LISTED_AS.get(provider, provider)
    try:
        rates = _rates(provider, name)
    except (ImportError, LookupError):
        return None
    if rates is None or usage.input_tokens > rates.most_input:
        return _asked(provider, name, usage)
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_written_tokens
    return (
        plain * rates.input
        + usage.cached_tokens * rates.cached
        + usage.cache_written_tokens * rates.written
        + usage.output_tokens * rates.output
    ) / MILLION


def is_known(model: str) -> bool:
    """Whether it is known what a model named `provider:model` costs. To read the price list takes a while."""
    return cost_of(model, Usage(input_tokens=1, output_tokens=1)) is not None


def prepare() -> None:
    """Read the price list, which takes a while, so that the first answer need not wait for it."""
    with suppress(ImportError, LookupError):
        _rates("openai", "gpt-4o")


class _Rates(NamedTuple):
    """Dollars for a million tokens, for requests of at most `most_input` tokens."""

    input: float
    output: float
    cached: float
    written: float
    most_input: float


@lru_cache(maxsize=1024)
def _rates(provider: str, name: str) -> _Rates | None:
    """None where they depend on more than the number of tokens. Raises `LookupError` for a model that is not listed."""
    from genai_prices.data_snapshot import get_snapshot

    _, model = get_snapshot().find_provider_model(name, None, provider, None)
    given = model.prices
    if isinstance(given, list):
        return None  # they change with the date, or the time of day
    most_input = float("inf")
    found: list[float | None] = []
    for kind in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"):
        price: Any = getattr(given, kind, None)
        if price is not None and not isinstance(price, Decimal):
            most_input = min(most_input, *(tier.start for tier in price.tiers))
            price = price.base
        found.append(None if price is None else float(price))
    input, output, cached, written = found
    if input is None or output is None:
        return None
    return _Rates(input, output, input if cached is None else cached, input if written is None else written, most_input)


def _asked(provider: str, name: str, usage: Usage) -> float | None:
    from genai_prices import Usage as Asked
    from genai_prices import calc_price

    asked = Asked(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens or None,
        cache_write_tokens=usage.cache_written_tokens or None,
    )
    try:
        return float(calc_price(asked, model_ref=name, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
