"""What a model costs: by its name, from the price list of `genai-prices`. What is not listed is unknown, not free."""

from __future__ import annotations

import importlib
import threading
from typing import Final

from checkrein.core.conditions import Usage

FREE: Final = frozenset({"ollama", "scripted"})
"""Providers that nobody is billed by: models on one's own machine."""


def cost_of(model: str, usage: Usage) -> float | None:
    """The price of `usage` in dollars for a model named `provider:model`; None when it is not known."""
    provider, _, name = model.partition(":")
    if provider in FREE or not usage.tokens:
        return 0.0
    if not name:
        return None  # a model that somebody made; the price list need not be read to know that it is not in it
    try:
        from genai_prices import Usage as Asked
        from genai_prices import calc_price

        asked = Asked(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        return float(calc_price(asked, model_ref=name, provider_id=provider).total_price)
    except (ImportError, LookupError):
        return None


def prepare() -> None:
    """Read the price list in a thread, so that the first answer does not wait for it."""
    threading.Thread(target=_read, name="checkrein-prices", daemon=True).start()


def _read() -> None:
    try:
        importlib.import_module("genai_prices")
    except ImportError:
        return
