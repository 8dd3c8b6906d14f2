"""What is known of programs that ask models: what each needs, besides the usual variables, to ask the gateway.

Data, one entry a program. Every program gets the variables of `Gateway.environment`; most need nothing else. Values are
templates: `{openai}`, `{anthropic}` and `{gemini}` are the addresses of the gateway, `{folder}` is one of this run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How one program is told where to ask."""

    name: str
    programs: tuple[str, ...]
    """By these names of its file it is recognised."""
    variables: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    """They go before its own."""
    files: Mapping[str, str] = {}
    """Settings that are written for this run alone, by their name below `{folder}`."""
    home: str = ""
    """Where its settings are usually, below the home of the user: `{folder}` has all of it but `files`."""
    needs: str = ""
    """The variable without which it is logged in otherwise, and all of this is left alone."""
    resumes: str = ""
    """How it goes on by its own record of what was said; empty: it cannot."""


_CODEX: Final = (
    'model_providers.checkrein={{name="OpenAI",base_url="{openai}",env_key="OPENAI_API_KEY",wire_api="responses"}}'
)
_OPENCODE: Final = (
    '{{"provider":{{"openai":{{"options":{{"baseURL":"{openai}"}}}},'
    '"anthropic":{{"options":{{"baseURL":"{anthropic}/v1"}}}}}}}}'
)
_PI: Final = '{{"providers":{{"openai":{{"baseUrl":"{openai}"}},"anthropic":{{"baseUrl":"{anthropic}"}}}}}}'
_LITELLM: Final = {"ANTHROPIC_API_BASE": "{anthropic}"}

PROFILES: Final[Sequence[Profile]] = (
    Profile(name="claude", programs=("claude",), resumes="claude --continue"),
    # It heeds no variable, and asks by WebSocket first where only its address is changed.
    Profile(
        name="codex",
        programs=("codex",),
        arguments=("-c", "model_provider=checkrein", "-c", _CODEX),
        needs="OPENAI_API_KEY",
        resumes="codex resume --last",
    ),
    # Without a chosen way to log in it ends with 41.
    Profile(
        name="gemini",
        programs=("gemini",),
        variables={"GEMINI_CLI_SYSTEM_SETTINGS_PATH": "{folder}/settings.json"},
        files={"settings.json": '{{"security":{{"auth":{{"selectedType":"gemini-api-key"}}}}}}'},
        needs="GEMINI_API_KEY",
        resumes="gemini --resume latest",
    ),
    # It posts to `{base}/messages`, without the version in between.
    Profile(
        name="opencode",
        programs=("opencode",),
        variables={"OPENCODE_CONFIG_CONTENT": _OPENCODE},
        resumes="opencode --continue",
    ),
    Profile(name="qwen", programs=("qwen",), resumes="qwen --continue"),
    Profile(
        name="copilot",
        programs=("copilot",),
        variables={"COPILOT_PROVIDER_BASE_URL": "{openai}"},
        needs="COPILOT_PROVIDER_API_KEY",
        resumes="copilot --continue",
    ),
    # It heeds no variable but the one for its folder.
    Profile(
        name="pi",
        programs=("pi",),
        variables={"PI_CODING_AGENT_DIR": "{folder}"},
        files={"models.json": _PI},
        home=".pi/agent",
        resumes="pi --continue",
    ),
    Profile(name="aider", programs=("aider",), variables=_LITELLM),
    Profile(name="mini", programs=("mini", "mini-swe-agent"), variables=_LITELLM),
    Profile(name="gptme", programs=("gptme",), resumes="gptme -r"),
    Profile(name="llm", programs=("llm",), resumes="llm -c"),
)

UNKNOWN: Final = Profile(name="", programs=(), variables=_LITELLM)
"""What a program gets that is not in the list."""
NAMES: Final = tuple(profile.name for profile in PROFILES)
"""The names that may be asked for."""


def profile_of(file: str, named: str | None = None) -> Profile:
    """The profile of this name; without one, that of a program by the name of its file. `none`, and a program that is
    not known, get what all get."""
    if named is not None:
        return next((profile for profile in PROFILES if profile.name == named), UNKNOWN)
    name = os.path.basename(file)
    return next((profile for profile in PROFILES if name in profile.programs), UNKNOWN)


class Prepared(msgspec.Struct, frozen=True):
    """A program as it is to be started so that it asks the gateway."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    is_known: bool = False
    """It is known to heed what it was told."""


def prepare(
    profile: Profile, command: Sequence[str], environment: Mapping[str, str], urls: Mapping[str, str], folder: Path
) -> Prepared:
    """What `command` becomes. The settings of its profile are written to `folder`, which exists and is private."""
    if profile.needs and not environment.get(profile.needs):
        return Prepared(tuple(command), dict(environment))
    values = {**urls, "folder": str(folder)}
    if profile.home:
        _mirror(Path.home() / profile.home, folder, but=profile.files)
    for name, text in profile.files.items():
        (folder / name).write_text(text.format(**values))
    filled = {name: value.format(**values) for name, value in profile.variables.items()}
    before = [argument.format(**values) for argument in profile.arguments]
    return Prepared((command[0], *before, *command[1:]), {**environment, **filled}, is_known=profile is not UNKNOWN)


def _mirror(home: Path, folder: Path, *, but: Mapping[str, str]) -> None:
    """Have everything in `home` found below `folder` too, and the sessions that are made there kept at home."""
    (home / "sessions").mkdir(parents=True, exist_ok=True)
    for entry in home.iterdir():
        if entry.name not in but:
            (folder / entry.name).symlink_to(entry)
