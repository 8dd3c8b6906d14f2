"""The providers that come with Checkrein, by the names of their models. A wire is imported when a model of it is named.

    openai:gpt-5               OPENAI_API_KEY, and OPENAI_BASE_URL for any server that speaks the same
    ollama:llama3              OLLAMA_HOST, or this machine; no key
    openrouter:vendor/model    OPENROUTER_API_KEY
    anthropic:claude-opus-5-5  ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for any server that speaks the same

Others put themselves in, with `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final

from checkrein.models.port import Model


# One object for a name, since it holds neither key nor address: these are read when it is asked.
@lru_cache(maxsize=256)
def _openai_wire(provider: str, name: str) -> Model:
    from checkrein.models.openai_wire import OpenAIModel

    return OpenAIModel(name, provider=provider)


@lru_cache(maxsize=256)
def _anthropic_wire(name: str) -> Model:
    from checkrein.models.anthropic_wire import AnthropicModel

    return AnthropicModel(name)


BUILT_IN: Final[Mapping[str, Callable[[str], Model]]] = MappingProxyType(
    {provider: partial(_openai_wire, provider) for provider in ("openai", "ollama", "openrouter")}
    | {"anthropic": _anthropic_wire}
)
"""What makes a model of what follows the prefix."""
