"""A model is named by its provider, or passed as itself."""

from __future__ import annotations

import pytest

from checkrein.errors import MisuseError, UnknownModel
from checkrein.models import ScriptedModel, known, register, registry, resolve


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", {})


def test_a_model_resolves_to_itself():
    model = ScriptedModel(["Hi."])

    assert resolve(model) is model


def test_a_name_is_made_into_a_model_by_its_provider():
    register("openai", lambda name: ScriptedModel([], name=f"openai:{name}"))

    assert resolve("openai:gpt-5").name == "openai:gpt-5"
    assert resolve("openai:ft:gpt-5:me").name == "openai:ft:gpt-5:me"
    assert known() == ("openai",)


@pytest.mark.parametrize("name", ["acme:m-1", "gpt-5", "", ":", "openai:", "OpenAI:gpt-5"])
def test_a_name_that_means_nothing_is_refused_naming_what_is_known(name: str):
    register("openai", lambda name: ScriptedModel([]))
    register("anthropic", lambda name: ScriptedModel([]))

    with pytest.raises(UnknownModel, match="Known providers: anthropic, openai") as caught:
        resolve(name)

    assert caught.value.code == "unknown_model"
    assert caught.value.known == ("anthropic", "openai")
    assert caught.value.remedy


def test_without_any_provider_the_refusal_says_so():
    with pytest.raises(UnknownModel, match="No provider is registered"):
        resolve("acme:m-1")


def test_a_scripted_model_cannot_be_had_by_name():
    with pytest.raises(UnknownModel, match=r"pass ScriptedModel\(\[\.\.\.\]\) itself"):
        resolve("scripted:demo")
    with pytest.raises(MisuseError):
        register("scripted", lambda name: ScriptedModel([]))


def test_something_else_than_a_model_is_refused():
    with pytest.raises(UnknownModel, match="is not a model"):
        resolve(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefix", ["", "a:b"])
def test_a_prefix_is_a_word(prefix: str):
    with pytest.raises(MisuseError):
        register(prefix, lambda name: ScriptedModel([]))
