"""What was measured, as a table for people and as JSON to be compared with later."""

from __future__ import annotations

import math
import os
import platform
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Final

import msgspec
import psutil

from bench.harness import Benchmark, Measure, Target

ROOT: Final = Path(__file__).parents[1]
RESULTS: Final = ROOT / "bench" / "results"
NOT_A_DISK: Final = frozenset({"tmpfs", "ramfs"})


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A measure as it is kept: with its verdict, so that a reader needs no arithmetic."""

    what: str
    value: float
    unit: str
    target: Target | None = None
    is_met: bool | None = None
    note: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark that was run."""

    name: str
    what: str
    seconds: float
    lines: list[Line]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    python: str
    sqlite: str
    processors: int
    file_system: str
    load_average: float
    """When it began: how busy the machine was with other things."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    at: str
    commit: str
    is_quick: bool
    machine: Machine
    results: list[Result]

    @property
    def verdicts(self) -> list[bool]:
        """Of each target, whether it was met."""
        return [line.is_met for result in self.results for line in result.lines if line.is_met is not None]


def machine(folder: Path) -> Machine:
    return Machine(
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        processors=os.cpu_count() or 0,
        file_system=_file_system(folder),
        load_average=os.getloadavg()[0],
    )


def _file_system(folder: Path) -> str:
    mounts = [part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "unknown"


def result(benchmark: Benchmark, measures: Sequence[Measure], seconds: float) -> Result:
    lines = [Line(**msgspec.structs.asdict(measure), is_met=measure.is_met) for measure in measures]
    return Result(name=benchmark.name, what=benchmark.what, seconds=seconds, lines=lines)


def report(results: list[Result], machine: Machine, *, is_quick: bool) -> Report:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(at=at, commit=_commit(), is_quick=is_quick, machine=machine, results=results)


def _commit() -> str:
    """The commit that was measured, with a plus sign where files had been changed since."""
    if shutil.which("git") is None:
        return ""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True)
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


# -- for people


def table(report: Report) -> str:
    rows = [("benchmark", "measure", "value", "target", "", "")]
    for result in report.results:
        names = chain([result.name], repeat(""))
        rows += [(name, *_cells(line)) for name, line in zip(names, result.lines, strict=False)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_row(row, widths) for row in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join([*lines, "", _summary(report)])


def _cells(line: Line) -> tuple[str, str, str, str, str]:
    target = f"{line.target.bound} {_number(line.target.limit)} {line.unit}" if line.target else ""
    verdict = {None: "", True: "met", False: "MISSED"}[line.is_met]
    return line.what, f"{_number(line.value)} {line.unit:<2}", target, verdict, line.note


def _row(row: tuple[str, ...], widths: Sequence[int]) -> str:
    benchmark, measure, value, *others = (
        cell.rjust(width) if column == 2 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join([benchmark, measure, value, *others]).rstrip()


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _summary(report: Report) -> str:
    machine = report.machine
    about = (
        f"Python {machine.python}, SQLite {machine.sqlite}, {machine.processors} processors, {machine.file_system}, "
        f"load {machine.load_average:.1f} at the beginning."
    )
    return f"{sum(report.verdicts)} of {len(report.verdicts)} targets met. {about}"


# -- to be kept


def keep(report: Report, path: Path | None) -> Path:
    """Write the report among the results, where it is also the latest, and to `path` where one is given."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    name = datetime.fromisoformat(report.at).strftime("%Y%m%dT%H%M%SZ")
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"{name}.json"
    for place in (kept, RESULTS / "latest.json", *([path] if path else [])):
        place.write_bytes(text)
    return kept
