from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, Json, Store


def doctor(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A Python file with agents to look at.")] = None,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Say what could not be stopped or undone here, and why.

    Looks at the tools of a file, at this system and at the store. Exit code: 1 when there is a problem.
    """
    from checkrein.cli import saying
    from checkrein.cli.examining import Finding, examine

    findings = examine(file, store)
    for finding in findings:
        if json:
            saying.out_json(finding)
        else:
            saying.out(f"{finding.level:<8} {finding.about}: {finding.what}")
            if finding.why:
                saying.out(f"{'':8}   {finding.why}")
    problems = sum(finding.level == Finding.PROBLEM for finding in findings)
    if not json:
        advice = sum(finding.level == Finding.ADVICE for finding in findings)
        saying.out(f"{problems} {'problem' if problems == 1 else 'problems'}, {advice} to consider.")
    raise typer.Exit(1 if problems else 0)
