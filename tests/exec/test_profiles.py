"""What programs are told so that they ask the gateway, and that nothing of a user's own settings is changed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkrein.exec.profiles import NAMES, PROFILES, UNKNOWN, Prepared, prepare, profile_of

URLS = {"openai": "http://g/s/openai/v1", "anthropic": "http://g/s/anthropic", "gemini": "http://g/s/gemini"}
KEYS = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k", "COPILOT_PROVIDER_API_KEY": "k"}


def prepared(name: str, folder: Path, environment: dict[str, str] = KEYS) -> Prepared:
    return prepare(profile_of(f"/usr/bin/{name}"), [name, "-p", "Go."], environment, URLS, folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_known_by_the_name_of_its_file_and_keeps_its_arguments(name: str, tmp_path: Path) -> None:
    made = prepared(name, tmp_path)

    assert made.is_known
    assert made.arguments[0] == name
    assert made.arguments[-2:] == ("-p", "Go.")
    assert not [text for text in (*made.arguments, *made.environment.values()) if "{openai}" in text or "{{" in text]


def test_names_and_files_are_told_apart() -> None:
    files = [file for profile in PROFILES for file in profile.programs]

    assert len({*NAMES}) == len(NAMES)
    assert len({*files}) == len(files)
    assert profile_of("/opt/my-agent") is UNKNOWN
    assert profile_of("/opt/claude", "none") is UNKNOWN
    assert profile_of("/opt/my-agent", "codex").name == "codex"


def test_codex_which_heeds_no_variable_is_told_by_arguments(tmp_path: Path) -> None:
    made = prepared("codex", tmp_path)

    assert f'base_url="{URLS["openai"]}"' in made.arguments[4]
    assert 'wire_api="responses"' in made.arguments[4]


def test_a_program_that_is_logged_in_otherwise_is_left_alone_and_not_taken_for_one_that_heeds(tmp_path: Path) -> None:
    for name in ("codex", "gemini", "copilot"):
        assert prepared(name, tmp_path, {}) == Prepared((name, "-p", "Go."), {}, is_known=False)
    assert not [*tmp_path.iterdir()]


def test_settings_are_written_for_the_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"
    (home / ".pi/agent").mkdir(parents=True)
    (home / ".pi/agent/auth.json").write_text("own")
    (home / ".pi/agent/models.json").write_text("own")
    folder.mkdir()
    monkeypatch.setenv("HOME", str(home))

    made = prepared("pi", folder)

    assert made.environment["PI_CODING_AGENT_DIR"] == str(folder)
    models = json.loads((folder / "models.json").read_text())
    assert models["providers"]["openai"]["baseUrl"] == URLS["openai"]
    assert (folder / "auth.json").read_text() == "own"
    assert (home / ".pi/agent/models.json").read_text() == "own"
    (folder / "sessions" / "one").write_text("kept")
    assert (home / ".pi/agent/sessions/one").read_text() == "kept"


def test_what_is_written_as_json_is_json(tmp_path: Path) -> None:
    prepared("gemini", tmp_path)

    assert json.loads((tmp_path / "settings.json").read_text())["security"]["auth"]["selectedType"] == "gemini-api-key"
    config = json.loads(prepared("opencode", tmp_path).environment["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"]["anthropic"]["options"]["baseURL"] == f"{URLS['anthropic']}/v1"
