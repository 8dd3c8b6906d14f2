"""A name is enough to ask a model: key and address are in the environment. The pages about it are true."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from checkrein.errors import ModelUnauthorised, ModelUnavailable, UnknownModel
from checkrein.models import Model, Request, User, collect, known, resolve
from checkrein.models.registry import OLLAMA, base_url_of, service_called
from checkrein.testing.provider import Provider, Reply

pytestmark = pytest.mark.anyio

PAGES: Final = Path(__file__).parents[2] / "docs" / "howto" / "providers"
ASKED: Final = Request("Be brief.", (User("Hi."),))
VARIABLES: Final = ("OPENAI", "OLLAMA", "OPENROUTER", "ACME", "GEMINI")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        monkeypatch.delenv(name)


def test_the_providers_that_come_along_are_known():
    assert {"openai", "ollama", "openrouter"} <= set(known())


@pytest.mark.parametrize(
    "name", ["openai:gpt-5", "openai:ft:gpt-5:acme::x", "ollama:qwen3:14b", "openrouter:qwen/qwen3-32b"]
)
def test_a_name_is_a_model_of_that_name(name: str):
    model = resolve(name)

    assert isinstance(model, Model)
    assert model.name == name
    assert resolve(name) is model
    assert name in repr(model)


@pytest.mark.parametrize("name", ["openai", "openai:", "gpt-5", "nobody:m-1"])
def test_another_name_is_refused_with_those_that_are_known(name: str):
    with pytest.raises(UnknownModel, match="openai, openai-responses, openrouter"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("openai:gpt-5", {"OPENAI_BASE_URL": "{url}", "OPENAI_API_KEY": "{key}"}),
        ("openai:gpt-5", {"OPENAI_BASE_URL": "{url}/", "OPENAI_API_KEY": " {key}\n"}),
        ("openrouter:qwen/qwen3-32b", {"OPENROUTER_BASE_URL": "{url}", "OPENROUTER_API_KEY": "{key}"}),
    ],
)
async def test_key_and_address_come_from_the_environment(
    name: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    async with Provider("Hello.") as provider:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value.format(url=provider.openai_url, key=provider.key))

        answer = await collect(resolve(name).stream(ASKED), ASKED)

        assert answer.message.text == "Hello."
        assert provider.log[0].model == name.partition(":")[2]
        assert provider.log[0].path == "/v1/chat/completions"


async def test_ollama_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    async with Provider("Hello.", key=None) as provider:
        monkeypatch.setenv("OLLAMA_HOST", f"0.0.0.0:{provider.port}")

        answer = await collect(resolve("ollama:llama3").stream(ASKED), ASKED)

        assert answer.message.text == "Hello."
        assert "authorization" not in provider.log[0].headers


async def test_organisation_and_project_go_along(monkeypatch: pytest.MonkeyPatch):
    async with Provider("Hello.") as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", provider.key)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")

        await collect(resolve("openai:gpt-5").stream(ASKED), ASKED)

        assert provider.log[0].headers["openai-organization"] == "org-1"
        assert provider.log[0].headers["openai-project"] == "proj-1"


@pytest.mark.parametrize("name", ["openai:gpt-5", "openrouter:qwen/qwen3-32b"])
async def test_without_a_key_the_variable_to_set_is_named_and_nothing_is_sent(name: str):
    with pytest.raises(ModelUnauthorised, match="is not set") as caught:
        await collect(resolve(name).stream(ASKED), ASKED)

    assert f"{name.partition(':')[0].upper()}_API_KEY" in caught.value.remedy


@pytest.mark.parametrize("url", ["gpu-1:8000", "http://user:sesame@", "http://gpu-1:port"])
async def test_an_address_that_is_none_is_said_without_repeating_it(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-any")

    with pytest.raises(ModelUnavailable, match="OPENAI_BASE_URL is no address") as caught:
        await collect(resolve("openai:gpt-5").stream(ASKED), ASKED)

    assert not caught.value.may_retry
    assert "sesame" not in str(caught.value)


def test_a_provider_that_is_not_known_needs_an_address_and_has_variables_of_its_own():
    with pytest.raises(ModelUnavailable, match="its address is not known") as caught:
        base_url_of(service_called("my-lab"), None)

    assert "MY_LAB_BASE_URL" in caught.value.remedy


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:5000", "http://127.0.0.1:5000/v1"),
        (":5000", "http://127.0.0.1:5000/v1"),
        ("gpu-1", "http://gpu-1:11434/v1"),
        ("[::1]:5000", "http://[::1]:5000/v1"),
        ("http://gpu-1:5000/", "http://gpu-1:5000/v1"),
        ("http://gpu-1:5000/v1", "http://gpu-1:5000/v1"),
        ("https://ollama.example/api", "https://ollama.example/api/v1"),
    ],
)
def test_the_host_of_ollama_is_read_as_ollama_reads_it(host: str, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", host)

    assert base_url_of(OLLAMA, None) == url


# -- the pages about it


async def run(program: str, folder: Path, environment: dict[str, str]) -> str:
    (folder / "program.py").write_text(program)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "program.py",
        cwd=folder,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


@pytest.mark.parametrize("page", ["openai", "ollama", "openrouter", "openai-compatible", "gemini"])
async def test_the_program_on_the_page_runs(page: str, tmp_path: Path):
    (program,) = re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)
    turns: list[Any] = [Reply("It is a strap.")]
    if page == "openai":
        turns = [Reply("I look.", calls=[("revenue", {"customer": "Ann"})]), Reply("It is a strap.")]
    async with Provider(turns) as provider:
        said = await run(
            program,
            tmp_path,
            {
                "OPENAI_BASE_URL": provider.openai_url,
                "OLLAMA_HOST": provider.url,
                "OPENROUTER_BASE_URL": provider.openai_url,
                "ACME_BASE_URL": provider.openai_url,
                "GOOGLE_GEMINI_BASE_URL": provider.gemini_url,
                **{f"{name}_API_KEY": provider.key for name in VARIABLES},
            },
        )
        results = [message["content"] for message in provider.log[-1].messages if message["role"] == "tool"]

    assert said == "It is a strap."
    assert len(provider.log) == len(turns)
    assert results == (["120"] if page == "openai" else [])
    journal = b"".join(path.read_bytes() for path in tmp_path.rglob("runs.db*") if path.is_file())
    assert journal
    assert provider.key.encode() not in journal
