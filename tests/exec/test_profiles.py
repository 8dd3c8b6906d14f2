"""What programs are told so that they ask the gateway, and that nothing of a user's own settings is changed by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkrein.exec.profiles import (
    NAMES,
    PROFILES,
    UNKNOWN,
    Prepared,
    bring_home,
    prepare,
    profile_of,
    started_again,
    upstreams_of,
)

SECRET = "checkrein-abc"
URLS = {name: f"http://g/{SECRET}/{name}" for name in ("anthropic", "gemini")} | {
    "openai": f"http://g/{SECRET}/openai/v1"
}
KEYS = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k", "COPILOT_PROVIDER_API_KEY": "k"}


def prepared(name: str, folder: Path, environment: dict[str, str] = KEYS) -> Prepared:
    environment = {"HOME": str(folder.parent / f"{folder.name}-home"), **environment}
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

    assert 'base_url="http://g/-/openai/v1"' in made.arguments[4]
    assert 'wire_api="responses"' in made.arguments[4]
    assert made.environment["CHECKREIN_GATEWAY_PASS"] == SECRET


@pytest.mark.parametrize("name", NAMES)
def test_no_argument_holds_the_secret_which_everybody_could_read_there(name: str, tmp_path: Path) -> None:
    assert not [argument for argument in prepared(name, tmp_path).arguments if SECRET in argument]


def test_a_program_that_is_logged_in_otherwise_is_left_alone_and_not_taken_for_one_that_heeds(tmp_path: Path) -> None:
    for name in ("codex", "gemini", "copilot"):
        made = prepared(name, tmp_path, {"HOME": "/home"})
        assert made == Prepared((name, "-p", "Go."), {"HOME": "/home"}, is_known=False)
    assert not [*tmp_path.iterdir()]


def made_home(tmp_path: Path, settings: dict[str, str]) -> tuple[Path, Path]:
    """A home with these files in it, and an empty folder of a run."""
    home, folder = tmp_path / "home", tmp_path / "folder"
    for name, text in settings.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    folder.mkdir()
    return home, folder


def test_settings_are_written_for_the_run_alone_over_those_of_the_user(tmp_path: Path) -> None:
    own = '{"providers": {"mine": {"baseUrl": "http://mine"}, "openai": {"baseUrl": "http://other"}}}'
    home, folder = made_home(tmp_path, {".pi/agent/auth.json": "own", ".pi/agent/models.json": own})

    made = prepared("pi", folder, {"HOME": str(home)})

    there = Path(made.environment["PI_CODING_AGENT_DIR"])
    models = json.loads((there / "models.json").read_text())
    assert there.is_relative_to(folder)
    assert models["providers"]["openai"]["baseUrl"] == URLS["openai"]
    assert models["providers"]["mine"]["baseUrl"] == "http://mine"
    assert (there / "auth.json").read_text() == "own"
    assert (home / ".pi/agent/models.json").read_text() == own
    (there / "sessions" / "one").write_text("kept")
    assert (home / ".pi/agent/sessions/one").read_text() == "kept"


def test_what_the_user_has_chosen_to_log_in_with_stays_chosen(tmp_path: Path) -> None:
    """Another way to log in is another bill."""
    own = '{"security": {"auth": {"selectedType": "oauth-personal"}}, "ui": {"theme": "mine"}}'
    home, folder = made_home(tmp_path, {".gemini/settings.json": own})

    prepared("gemini", folder, KEYS | {"HOME": str(home)})

    settings = json.loads((folder / ".gemini/settings.json").read_text())
    assert settings == json.loads(own)


def test_what_a_program_makes_in_the_folder_of_its_run_is_at_home_afterwards(tmp_path: Path) -> None:
    home, folder = made_home(tmp_path, {".gemini/projects.json": "old", ".gemini/oauth.json": "own"})
    environment = KEYS | {"HOME": str(home)}
    prepared("gemini", folder, environment)
    (folder / ".gemini/installation_id").write_text("new")
    (folder / ".gemini/projects.json").unlink()
    (folder / ".gemini/projects.json").write_text("newer")

    bring_home(profile_of("gemini"), environment, folder)

    found = {file.name: file.read_text() for file in (home / ".gemini").iterdir() if file.is_file()}
    assert found == {"projects.json": "newer", "oauth.json": "own", "installation_id": "new"}


def test_a_program_is_started_again_from_its_own_record_or_else_as_it_was() -> None:
    assert started_again(["claude", "-p", "Count."]) == "exec -- claude --continue"
    assert started_again(["/opt/my agent", "Count."]) == "exec -- '/opt/my agent' Count."


def test_a_clock_that_runs_out_during_a_pause_is_set_unless_the_user_has_set_it(tmp_path: Path) -> None:
    made = prepared("claude", tmp_path, {"API_TIMEOUT_MS": "7"})

    assert made.environment["API_TIMEOUT_MS"] == "7"
    assert int(made.environment["CLAUDE_STREAM_IDLE_TIMEOUT_MS"]) > 24 * 3600 * 1000
    assert "stream_idle_timeout_ms=604800000}" in prepared("codex", tmp_path).arguments[4]


def test_where_a_program_was_told_to_ask_by_a_variable_of_its_own_is_where_requests_go_on_to() -> None:
    copilot = profile_of("copilot")

    assert upstreams_of(copilot, {"COPILOT_PROVIDER_BASE_URL": "http://mine/v1"}) == {"openai": "http://mine/v1"}
    assert upstreams_of(copilot, {}) == {}


def test_what_is_written_as_json_is_json_over_what_was_there(tmp_path: Path) -> None:
    held = '{"theme": "mine", "provider": {"anthropic": {"options": {"timeout": 7}}}}'
    home, folder = made_home(tmp_path, {"x": ""})

    prepared("gemini", folder, KEYS | {"HOME": str(home)})
    made = prepared("opencode", folder, KEYS | {"OPENCODE_CONFIG_CONTENT": held})

    settings = json.loads((folder / ".gemini/settings.json").read_text())
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    config = json.loads(made.environment["OPENCODE_CONFIG_CONTENT"])
    assert config["theme"] == "mine"
    options = config["provider"]["anthropic"]["options"]
    assert (options["timeout"], options["baseURL"]) == (7, f"{URLS['anthropic']}/v1")
    assert options["chunkTimeout"] is False, "a pause would outlast it"
