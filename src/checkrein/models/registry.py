"""Which provider a model's name means. Those of `by_name` are known from the start, others put themselves in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from checkrein.errors import MisuseError, UnknownModel
from checkrein.models.by_name import BUILT_IN
from checkrein.models.port import Model

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
