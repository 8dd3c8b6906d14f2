"""The fenced blocks of the documentation, and the environment of somebody who follows it."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import click

from checkrein import logs
from checkrein.cli import output

ROOT: Final = Path(__file__).parents[2]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str

    @property
    def file(self) -> str:
        """The name under which the page has it saved, if it has."""
        found = re.match(r"# file: (\S+)\n", self.code)
        return "" if found is None else found[1]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        yield Block(str(page.relative_to(ROOT)), text[: found.start()].count("\n") + 1, found[1], found[2])


def parsed(words: Sequence[str]) -> click.Context:
    """What `checkrein` makes of these words, before anything is done. `--help` and `--version` raise `Exit`.

    What a command remembers for its own sentences is forgotten, so that no other test in this process meets it.
    """
    from checkrein.cli.app import program

    command: click.Command = program
    # As the program makes it: a command remembers the first `--help` that it was asked for.
    context = program.make_context("checkrein", [], resilient_parsing=True)
    while isinstance(command, click.Group) and words and (under := command.get_command(context, words[0])):
        command, words = under, words[1:]
    with logs.configured(), patch.object(output, "_options", []), patch.object(output, "_file", []):
        return command.make_context(command.name, list(words), parent=context)


def environment_of_a_user(made: Path) -> dict[str, str]:
    """The environment of somebody who has this checkout and no index: what pip would load is taken from here.

    Nothing is ever installed into the environment that the tests run in. What is needed is put into the folder `made`.
    """
    venv.create(made, with_pip=False)
    (made / "bin" / "pip").write_text(f'#!/bin/sh\nexec "{made}/bin/python" -m pip "$@"\n')
    (made / "bin" / "pip").chmod(0o700)
    (made / "bin" / "checkrein").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "from checkrein.cli import main; main()" "$@"\n'
    )
    (made / "bin" / "checkrein").chmod(0o700)
    (made / "checkrein").symlink_to(ROOT)
    ours = {str(Path(sys.executable).parent), os.environ.get("VIRTUAL_ENV", "/") + "/bin"}
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder not in ours]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CHECKREIN_", "VIRTUAL_ENV"))},
        "PATH": os.pathsep.join([str(made / "bin"), *path]),
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # how pip is told not to isolate
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
