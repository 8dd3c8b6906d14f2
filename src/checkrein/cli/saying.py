"""How a command speaks: sentences for people, one JSON object per line for programs, complaints on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from checkrein.cli.clean import printable


def out(text: str = "") -> None:
    """A line on standard output."""
    print(printable(text), file=sys.stdout, flush=True)


def note(text: str) -> None:
    """A line for whoever sits at the terminal, on standard error: never part of what a program reads."""
    print(printable(text), file=sys.stderr, flush=True)


def line_of(value: Any) -> str:
    """A value as one line of JSON, in plain ASCII: nothing in it can act on a terminal either."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True).replace("\x7f", "\\u007f")


def out_json(value: Any) -> None:
    print(line_of(value), file=sys.stdout, flush=True)


def complain(code: str, message: str, *, as_json: bool = False) -> None:
    """One sentence about what went wrong, with its stable code."""
    note(line_of({"code": code, "message": message}) if as_json else f"error[{code}]: {message}")


def is_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
