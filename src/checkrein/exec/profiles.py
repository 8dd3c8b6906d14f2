"""What is known of programs that ask models: what each needs, besides the usual variables, to ask the gateway.

Data, one entry a program. Every program gets the variables of `Gateway.environment`; most need nothing else. Values are
templates: `{openai}`, `{anthropic}` and `{gemini}` are the addresses of the gateway, which hold its `{secret}` (but for
`{openai_without_secret}`); `{folder}` is one of this run.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from checkrein.gateway.upstream import NO_SECRET, secret_in

_log = logging.getLogger(__name__)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How one program is told where to ask."""

    name: str
    programs: tuple[str, ...]
    """By these names of its file it is recognised."""
    variables: Mapping[str, str] = {}
    defaults: Mapping[str, str] = {}
    """Variables that count where the user has set none."""
    arguments: tuple[str, ...] = ()
    """They go before its own."""
    files: Mapping[str, str] = {}
    """Settings as JSON for this run alone, by their name below `{folder}`: over those of the user that lie there."""
    yields: bool = False
    """What the user has set of `files` counts, and not what is said here."""
    home: str = ""
    """Where its settings are usually, below the home of the user: `{folder}` leads to all of it but `files`."""
    keeps: tuple[str, ...] = ()
    """Folders below `home` in which it remembers what was said: there from the first run on."""
    upstreams: Mapping[str, str] = {}
    """Variables of its own that say where requests go on to, by provider."""
    hears_of_kills: bool = True
    """It goes on when a command of its own was killed. One that waits for it all the same has its commands spared by a
    redirect."""
    offers_tools: bool = True
    """Its main conversation offers tools, so that what offers none is a title or a summary."""
    asks: str = ""
    """It asks before each of its tools where settings say so, which are given to it by this option."""
    needs: str = ""
    """The variable without which it is logged in otherwise, and all of this is left alone."""
    resumes: str = ""
    """How it goes on by its own record of what was said; empty: it cannot."""


_WEEK_MS: Final = "604800000"
"""How long a program waits for the next word of an answer: a pause stops it, but not its clock, and one that has run
out by the resume would have it ask anew. The gateway has a patience of its own with providers."""

_CODEX: Final = (
    'model_providers.checkrein={{name="OpenAI",base_url="{openai_without_secret}",env_key="OPENAI_API_KEY",'
    'env_http_headers={{"x-checkrein-secret"="CHECKREIN_GATEWAY_PASS"}},wire_api="responses",'
    f"stream_idle_timeout_ms={_WEEK_MS}}}}}"
)
_OPENCODE: Final = (
    '{{"provider":{{"openai":{{"options":{{"baseURL":"{openai}","chunkTimeout":false,"headerTimeout":false}}}},'
    '"anthropic":{{"options":{{"baseURL":"{anthropic}/v1","chunkTimeout":false,"headerTimeout":false}}}}}}}}'
)
_PI: Final = '{{"providers":{{"openai":{{"baseUrl":"{openai}"}},"anthropic":{{"baseUrl":"{anthropic}"}}}}}}'
_LITELLM: Final = {"ANTHROPIC_API_BASE": "{anthropic}"}

PROFILES: Final[Sequence[Profile]] = (
    Profile(
        name="claude",
        programs=("claude",),
        defaults={
            "CLAUDE_STREAM_IDLE_TIMEOUT_MS": _WEEK_MS,
            "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": _WEEK_MS,
            "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS": _WEEK_MS,
            "API_TIMEOUT_MS": _WEEK_MS,
        },
        asks="--settings",
        resumes="claude --continue",
    ),
    # It heeds no variable, and asks by WebSocket first where only its address is changed. Everybody on the machine can
    # read its arguments, so the secret is not in them.
    Profile(
        name="codex",
        programs=("codex",),
        arguments=("-c", "model_provider=checkrein", "-c", _CODEX),
        variables={"CHECKREIN_GATEWAY_PASS": "{secret}"},
        needs="OPENAI_API_KEY",
        resumes="codex resume --last",
    ),
    # With another address and no chosen way to log in it ends with 41. Settings of the system must be root's.
    Profile(
        name="gemini",
        programs=("gemini",),
        variables={"GEMINI_CLI_HOME": "{folder}"},
        files={".gemini/settings.json": '{{"security":{{"auth":{{"selectedType":"gemini-api-key"}}}}}}'},
        yields=True,
        home=".gemini",
        keeps=("tmp", "history"),
        needs="GEMINI_API_KEY",
        resumes="gemini --resume latest",
    ),
    # It posts to `{base}/messages`, without the version in between. A command that a signal has ended is at work to it
    # until its own limit of minutes.
    Profile(
        name="opencode",
        programs=("opencode",),
        variables={"OPENCODE_CONFIG_CONTENT": _OPENCODE},
        hears_of_kills=False,
        resumes="opencode --continue",
    ),
    Profile(name="qwen", programs=("qwen",), resumes="qwen --continue"),
    Profile(
        name="copilot",
        programs=("copilot",),
        variables={"COPILOT_PROVIDER_BASE_URL": "{openai}"},
        upstreams={"openai": "COPILOT_PROVIDER_BASE_URL"},
        needs="COPILOT_PROVIDER_API_KEY",
        resumes="copilot --continue",
    ),
    # It heeds no variable but the one for its folder.
    Profile(
        name="pi",
        programs=("pi",),
        variables={"PI_CODING_AGENT_DIR": "{folder}/.pi/agent"},
        files={".pi/agent/models.json": _PI},
        home=".pi/agent",
        keeps=("sessions",),
        resumes="pi --continue",
    ),
    Profile(name="aider", programs=("aider",), variables=_LITELLM, offers_tools=False),
    Profile(name="mini", programs=("mini", "mini-swe-agent"), variables=_LITELLM),
    # It writes its commands into the text, unless it is told otherwise.
    Profile(name="gptme", programs=("gptme",), offers_tools=False, resumes="gptme -r"),
    Profile(name="llm", programs=("llm",), offers_tools=False, resumes="llm -c"),
)

UNKNOWN: Final = Profile(name="", programs=(), variables=_LITELLM, offers_tools=False)
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


def started_again(command: Sequence[str]) -> str:
    """What starts a program once more, to be typed after `checkrein`: from its own record of what was said, where it
    keeps one, else as it was started."""
    _, *arguments = shlex.split(profile_of(command[0]).resumes) or [""]
    return f"exec -- {shlex.join([command[0], *arguments] if arguments else command)}"


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
    secret = secret_in(urls["openai"])
    values = {**urls, "folder": str(folder), "secret": secret}
    values["openai_without_secret"] = urls["openai"].replace(secret, NO_SECRET)
    home = Path(environment.get("HOME") or Path.home())
    if profile.home:
        _mirror(home, folder, profile)
    for name, text in profile.files.items():
        ours, theirs = _settings(text.format(**values)), _settings_in(home / name)
        merged = _over(ours, theirs) if profile.yields else _over(theirs, ours)
        (folder / name).write_bytes(msgspec.json.encode(merged))
    filled = {name: _filled(value.format(**values), environment.get(name)) for name, value in profile.variables.items()}
    before = [argument.format(**values) for argument in profile.arguments]
    told = {**profile.defaults, **environment, **filled}
    return Prepared((command[0], *before, *command[1:]), told, is_known=profile is not UNKNOWN)


def upstreams_of(profile: Profile, environment: Mapping[str, str]) -> dict[str, str]:
    """Where the program's own variables say that requests go, by provider."""
    return {name: held for name, variable in profile.upstreams.items() if (held := environment.get(variable, ""))}


def bring_home(profile: Profile, environment: Mapping[str, str], folder: Path) -> None:
    """What the program has made in its folder of this run belongs to its usual one. Nothing there is replaced but what
    was led to from here."""
    if not profile.home or not (folder / profile.home).is_dir():
        return
    home = Path(environment.get("HOME") or Path.home())
    for entry in (folder / profile.home).iterdir():
        is_ours = str(entry.relative_to(folder)) in profile.files
        if is_ours or entry.is_symlink():
            continue
        there = home / profile.home / entry.name
        if entry.is_file() or not there.exists():
            shutil.move(entry, there)


def _mirror(home: Path, folder: Path, profile: Profile) -> None:
    """Have everything below the profile's home found below `folder` too, and what it remembers kept at home."""
    for name in profile.keeps:
        (home / profile.home / name).mkdir(parents=True, exist_ok=True)
    (folder / profile.home).mkdir(parents=True)
    for entry in (home / profile.home).iterdir():
        if f"{profile.home}/{entry.name}" not in profile.files:
            (folder / profile.home / entry.name).symlink_to(entry)


def _filled(value: str, held: str | None) -> str:
    """A variable; where it holds settings, over those that it held before."""
    if held is None or not value.startswith("{"):
        return value
    return msgspec.json.encode(_over(_settings(held), _settings(value))).decode()


def _settings_in(file: Path) -> dict[str, Any]:
    try:
        return _settings(file.read_text())
    except OSError:
        return {}


def _settings(text: str) -> dict[str, Any]:
    """Settings as JSON; none where they are not understood, such as with comments in them."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        _log.info("settings of the program are no plain JSON, and left out in this run")
        return {}


def _over(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """`upper` laid over `lower`."""
    merged = dict(lower)
    for name, value in upper.items():
        below = merged.get(name)
        merged[name] = _over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
