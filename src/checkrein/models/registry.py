"""Which provider a model's name means. Those below are known from the start, others put themselves in.

The providers that come with Checkrein, by the names of their models. A wire is imported when a model of it is named.

    openai:gpt-5               OPENAI_API_KEY, and OPENAI_BASE_URL for any server that speaks the same
    ollama:llama3              OLLAMA_HOST, or this machine; no key
    openrouter:vendor/model    OPENROUTER_API_KEY
    anthropic:claude-opus-5-5  ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for any server that speaks the same
    openai-responses:gpt-5     as openai, over its Responses
    gemini:gemini-2.5-flash    GEMINI_API_KEY, and GOOGLE_GEMINI_BASE_URL for any server that speaks the same

Others put themselves in, with `register`.

Who speaks the OpenAI wire, where they are and where their keys are kept: data, and what the environment says.

The environment is read when a model is asked, so a key may be set after the agent was made. A key is held in no object
of ours unless it was passed as an argument, and is never shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from checkrein.errors import MisuseError, ModelUnauthorised, ModelUnavailable, UnknownModel
from checkrein.models.base import Model


# One object for a name, since it holds neither key nor address: these are read when it is asked.
@lru_cache(maxsize=256)
def _openai_wire(provider: str, name: str) -> Model:
    from checkrein.models.openai import OpenAIModel

    return OpenAIModel(name, provider=provider)


@lru_cache(maxsize=256)
def _anthropic_wire(name: str) -> Model:
    from checkrein.models.anthropic.model import AnthropicModel

    return AnthropicModel(name)


@lru_cache(maxsize=256)
def _responses_wire(name: str) -> Model:
    from checkrein.models.openai_responses import ResponsesModel

    return ResponsesModel(name)


@lru_cache(maxsize=256)
def _gemini_wire(name: str) -> Model:
    from checkrein.models.gemini import GeminiModel

    return GeminiModel(name)


BUILT_IN: Final[Mapping[str, Callable[[str], Model]]] = MappingProxyType(
    {provider: partial(_openai_wire, provider) for provider in ("openai", "ollama", "openrouter")}
    | {"anthropic": _anthropic_wire, "openai-responses": _responses_wire, "gemini": _gemini_wire}
)
"""What makes a model of what follows the prefix."""


Factory = Callable[[str], Model]
"""Makes a model from what follows the prefix: `openai:gpt-5` calls the factory of `openai` with `gpt-5`."""

_FACTORIES: Final[dict[str, Factory]] = dict(BUILT_IN)

_IN_PYTHON: Final = frozenset({"scripted"})
"""Models that a name cannot describe."""


def register(prefix: str, factory: Factory) -> None:
    """Let `factory` make every model whose name begins with `prefix` and a colon. The last one registered counts."""
    if not prefix or ":" in prefix:
        raise MisuseError(f"{prefix!r} cannot be the prefix of a model: it must be a word without a colon.")
    if prefix in _IN_PYTHON:
        raise MisuseError(f"The prefix {prefix!r} is reserved: such models are made in Python, not by name.")
    _FACTORIES[prefix] = factory


def resolve(model: str | Model) -> Model:
    """The model that is meant. Raises `UnknownModel`, naming the known prefixes, for a name that means nothing."""
    if not isinstance(model, str):
        if isinstance(model, Model):
            return model
        raise UnknownModel(f"{model!r} is not a model: it has no `name` and `stream`.", model=repr(model))
    prefix, colon, name = model.partition(":")
    if prefix in _IN_PYTHON:
        raise UnknownModel(
            f"Model {model!r} cannot be had by name: pass ScriptedModel([...]) itself.", model=model, known=known()
        )
    if not colon or not name:
        raise UnknownModel(
            f"Model {model!r} does not say who provides it: write provider:model. {_known_sentence()}",
            model=model,
            known=known(),
        )
    factory = _FACTORIES.get(prefix)
    return _from_elsewhere(model) if factory is None else factory(name)


def _from_elsewhere(model: str) -> Model:
    """A model of a provider that is none of ours, through pydantic-ai where that is installed."""
    try:
        from checkrein.models.pydantic_ai import PydanticAIModel
    except ImportError:
        raise UnknownModel(
            f"Model {model!r} is of no known provider. {_known_sentence()} "
            "Many more come with: pip install 'checkrein[providers]'.",
            model=model,
            known=known(),
        ) from None
    try:
        return PydanticAIModel(model)
    except UnknownModel as unknown:
        sentence = f"Model {model!r} is of no known provider. {_known_sentence()} {unknown.message}"
        raise UnknownModel(sentence, model=model, known=known()) from None


def known() -> tuple[str, ...]:
    """The prefixes that can be resolved."""
    return tuple(sorted(_FACTORIES))


def _known_sentence() -> str:
    return f"Known providers: {', '.join(known())}." if _FACTORIES else "No provider is registered."


Limit = Literal["max_tokens", "max_completion_tokens"]


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A server that speaks the OpenAI wire, and what is peculiar about it."""

    name: str
    """What stands before the colon."""
    base_url: str = ""
    url_variable: str = ""
    key_variable: str = ""
    needs_key: bool = True
    limit_field: Limit = "max_tokens"
    """How it calls the limit on the length of an answer."""
    header_variables: Mapping[str, str] = MappingProxyType({})
    """Headers that the environment may ask for, and the variables that do."""
    when_refused: str = ""
    """What helps when nothing listens at its address."""
    continues: bool | None = None
    """Whether it goes on where a half answer breaks off. None: that depends on the engine behind the address."""
    tells_cost: bool = False
    """It says itself what each answer has cost."""


OPENAI: Final = Service(
    name="openai",
    base_url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    limit_field="max_completion_tokens",
    header_variables=MappingProxyType({"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}),
)
OLLAMA: Final = Service(
    name="ollama",
    base_url="http://127.0.0.1:11434/v1",
    url_variable="OLLAMA_HOST",
    key_variable="OLLAMA_API_KEY",
    needs_key=False,
    when_refused="Start Ollama with `ollama serve`, or set OLLAMA_HOST to where it runs; then resume.",
    continues=True,
)
OPENROUTER: Final = Service(
    name="openrouter",
    base_url="https://openrouter.ai/api/v1",
    url_variable="OPENROUTER_BASE_URL",
    key_variable="OPENROUTER_API_KEY",
    continues=False,
    tells_cost=True,
)

SERVICES: Final[Mapping[str, Service]] = MappingProxyType(
    {service.name: service for service in (OPENAI, OLLAMA, OPENROUTER)}
)


def service_called(name: str) -> Service:
    """The service of that name. One that is not known here has its key in `NAME_API_KEY` and needs a base URL."""
    prefix = "".join(letter if letter.isalnum() else "_" for letter in name).upper()
    return SERVICES.get(name) or Service(name=name, url_variable=f"{prefix}_BASE_URL", key_variable=f"{prefix}_API_KEY")


def base_url_of(service: Service, given: str | None) -> str:
    """Where to ask: as an argument says, or the environment, or else the service's own address."""
    if given is not None:
        return given
    said = os.environ.get(service.url_variable, "").strip()
    if service.url_variable == "OLLAMA_HOST" and said:
        said = _ollama_url(said)
    url = said or service.base_url
    if not is_address(url):
        # What was said is not repeated: a base URL may hold a password.
        what = f"{service.url_variable} is no address" if said else "its address is not known"
        raise ModelUnavailable(
            f"{service.name} could not be reached: {what}.",
            reason="unreachable",
            may_retry=False,
            remedy=f"Set {service.url_variable} to a URL that begins with http:// or https://, or pass base_url=…",
        )
    return url


def key_of(service: Service, given: str | None) -> str:
    """The API key, "" where none is needed. Raises `ModelUnauthorised` if there is none, or none that can be sent."""
    key = (given if given is not None else os.environ.get(service.key_variable, "")).strip()
    if not key and given is None and service.needs_key:
        raise ModelUnauthorised(
            f"There is no API key for {service.name}: {service.key_variable} is not set.",
            remedy=f"Set {service.key_variable}, or pass api_key=… (api_key='' for a server that takes none); "
            "then resume.",
        )
    if not (key.isascii() and key.isprintable()):
        raise ModelUnauthorised(f"The API key for {service.name} holds characters that no key has.")
    return key


def is_address(url: str) -> bool:
    parts = split_url(url)
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def split_url(url: str) -> SplitResult | None:
    """The parts of `url`; None if it has none."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # read, because only this finds out that it is no number
    except ValueError:
        return None
    return parts


def _ollama_url(host: str) -> str:
    """`OLLAMA_HOST` as Ollama reads it: also without a scheme or a port, also the address that a server binds to."""
    parts = split_url(host if "://" in host else f"http://{host}")
    if parts is None:
        return host
    name = parts.hostname or "127.0.0.1"
    if name in ("0.0.0.0", "::"):
        name = "127.0.0.1"
    port = parts.port or (None if "://" in host else 11434)
    path = parts.path.rstrip("/")
    return parts._replace(
        netloc=(f"[{name}]" if ":" in name else name) + (f":{port}" if port else ""),
        path=path if path.endswith("/v1") else f"{path}/v1",
    ).geturl()
