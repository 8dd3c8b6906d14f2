"""Packages that are only measured against: in an environment of their own beside the project's, made when first needed.

Nothing of them is installed where the tests run. Where they cannot be had, as on a machine without a network, what
compares with them is left out of the table with a word on why.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from bench.report import ROOT

FOLDER: Final = ROOT / "bench" / ".peers"
PYTHON: Final = FOLDER / "bin" / "python"
PACKAGES: Final = ("langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2", "openai==3.49.0")
PATIENCE_SECONDS: Final = 600.0


class NotToBeHad(Exception):
    """Why the peers are not there, in a few words."""


async def python_of_peers() -> Path:
    """An interpreter that has them. Raises `NotToBeHad`."""
    stamp, wanted = FOLDER / ".installed", "\n".join(PACKAGES)
    if not (PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted):
        await asyncio.to_thread(_make)
        stamp.write_text(wanted)
    return PYTHON


def _make() -> None:
    print("installing the peers ... ", end="", file=sys.stderr, flush=True)
    try:
        venv.create(FOLDER, clear=True, with_pip=True)
        (FOLDER / ".gitignore").write_text("*\n")
        options = ["-qq", "--disable-pip-version-check", "--retries", "1", "-c", str(ROOT / "constraints.txt")]
        subprocess.run(
            [PYTHON, "-m", "pip", "install", *options, *PACKAGES],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotToBeHad(f"installing them took more than {PATIENCE_SECONDS:.0f} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotToBeHad("they could not be installed") from error
