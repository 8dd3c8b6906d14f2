"""How a program is told to ask before each of its tools: Claude Code's `PreToolUse` hook, as settings of this run."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from checkrein.errors import WrongInput
from checkrein.exec import hook_main

HOOK_SECONDS: Final = 2_000_000
"""Longer than a person takes to answer, and within what a timer of the program can count."""

REFUSES_UNLESS_ANSWERED: Final = (
    "trap 'kill $! 2>/dev/null; exit 2' TERM HUP INT; exec 3<&0; {} <&3 3<&- & wait $! || exit 2"
)
"""The line for a shell. Only exit 2 refuses a tool; by any other end of its hook, such as by a signal, the program goes
on. In the background, so that the shell heeds a signal at once and ends the hook with it: nobody is then asked any
more."""


def with_hook(command: Sequence[str], option: str, address: str, folder: Path) -> tuple[str, ...]:
    """`command` with settings by which its program asks at `address`. They are written to `folder`, which is private:
    everybody on the machine can read arguments.

    The program heeds one `option` only, so what the command says there is joined with the hook. Raises `WrongInput`
    where that cannot be read.
    """
    (folder / "hook").write_text(address)
    asks = shlex.join([sys.executable, "-I", "-S", hook_main.__file__, str(folder / "hook")])
    line = REFUSES_UNLESS_ANSWERED.format(asks)
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": line, "timeout": HOOK_SECONDS}]}
    rest, own = _without(command[1:], option)
    settings = folder / "hook-settings.json"
    settings.write_text(json.dumps(_joined(_read(option, own) if own else {}, {"hooks": {"PreToolUse": [hook]}})))
    return (command[0], option, str(settings), *rest)


def _without(arguments: Sequence[str], option: str) -> tuple[list[str], str]:
    """The arguments without `option`, and what it was given."""
    rest: list[str] = []
    given = ""
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == option:
            given = next(words, "")
        elif word.startswith(f"{option}="):
            given = word.partition("=")[2]
        else:
            rest.append(word)
    return rest, given


def _read(option: str, given: str) -> Any:
    try:
        found = json.loads(given if given.lstrip().startswith("{") else Path(given).read_text())
    except (OSError, ValueError) as error:
        raise WrongInput(f"What {option} is given cannot be read: {error}.", code="settings") from error
    if not isinstance(found, dict):
        raise WrongInput(f"What {option} is given is no JSON object.", code="settings")
    return found


def _joined(one: Any, other: Any) -> Any:
    """Two settings in one: objects by their members, lists one after the other."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{name: _joined(one[name], it) if name in one else it for name, it in other.items()}}
    return [*one, *other] if isinstance(one, list) and isinstance(other, list) else other
