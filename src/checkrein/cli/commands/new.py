from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli.options import Json


def new(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="What to call it.")] = Path("agent.py"),
    json: Json = False,
) -> None:
    """Write a small agent to begin with.

    It runs without a key, and has a tool that can be undone. A file that exists is left alone.
    """
    from checkrein.cli import saying
    from checkrein.cli.starter import write

    next_commands = write(file)
    if json:
        saying.out_json({"file": str(file), "next": next_commands})
        return
    saying.out(f"Wrote {file}. It needs neither key nor network. Next:")
    for command in next_commands:
        saying.out(f"  {command}")
