"""Who speaks the OpenAI wire, where they are and where their keys are kept: data, and what the environment says.

The environment is read when a model is asked, so a key may be set after the agent was made. A key is held in no object
of ours unless it was passed as an argument, and is never shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from checkrein.errors import ModelUnauthorised, ModelUnavailable

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
)
OPENROUTER: Final = Service(
    name="openrouter",
    base_url="https://openrouter.ai/api/v1",
    url_variable="OPENROUTER_BASE_URL",
    key_variable="OPENROUTER_API_KEY",
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
