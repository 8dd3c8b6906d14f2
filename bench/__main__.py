"""python -m bench [names ...] [--quick] [--json PATH] [--list] [--strict]"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import anyio

from bench import (
    adapted_steps,
    cancel_walk,
    capacity,
    core_speed,
    durable_steps,
    evidence,
    fleet_idle,
    fleet_readers,
    fleet_steps,
    fleet_takeover,
    fleet_text,
    fleet_verbs,
    gateway,
    idle_serve,
    importing,
    kill_switch,
    lone_append,
    long_call_text,
    long_run_append,
    long_run_load,
    long_run_steps,
    many_writers,
    paused_runs,
    postgres_costs,
    postgres_journal,
    postgres_processes,
    postgres_roles,
    replay,
    stopping,
    streamed_tokens,
    verb_from_outside,
    verbs_under_load,
    warm_worker,
    wire_steps,
    wire_stops,
)
from bench.harness import Benchmark, Room
from bench.report import NOT_A_DISK, ROOT, Result, keep, machine, report, result, table

BENCHMARKS: Final = (
    lone_append.BENCHMARK,
    many_writers.BENCHMARK,
    long_run_append.BENCHMARK,
    long_run_load.BENCHMARK,
    core_speed.BENCHMARK,
    verb_from_outside.BENCHMARK,
    durable_steps.BENCHMARK,
    long_run_steps.BENCHMARK,
    stopping.BENCHMARK,
    kill_switch.BENCHMARK,
    evidence.BENCHMARK,
    cancel_walk.BENCHMARK,
    warm_worker.BENCHMARK,
    paused_runs.BENCHMARK,
    replay.BENCHMARK,
    streamed_tokens.BENCHMARK,
    long_call_text.BENCHMARK,
    wire_steps.BENCHMARK,
    wire_stops.BENCHMARK,
    adapted_steps.BENCHMARK,
    verbs_under_load.BENCHMARK,
    idle_serve.BENCHMARK,
    importing.BENCHMARK,
    postgres_costs.BENCHMARK,
    postgres_journal.BENCHMARK,
    postgres_processes.BENCHMARK,
    postgres_roles.BENCHMARK,
    fleet_verbs.BENCHMARK,
    fleet_text.BENCHMARK,
    fleet_readers.BENCHMARK,
    fleet_steps.BENCHMARK,
    fleet_takeover.BENCHMARK,
    fleet_idle.BENCHMARK,
    gateway.BENCHMARK,
    capacity.BENCHMARK,
)
BUILD: Final = ROOT / "build" / "bench"
"""On the disk of the project, because a commit has to be a real one; what /tmp is on, nobody knows."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.list:
        for benchmark in BENCHMARKS:
            print(f"{benchmark.name:<18} {benchmark.what}")
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    about = machine(BUILD)
    if about.file_system in NOT_A_DISK:
        _say(f"{BUILD} is on {about.file_system}, where nothing reaches a disk: the ratios below mean little.\n")
    results = [_run(one, options.quick) for one in BENCHMARKS if one.name in (options.names or _names())]
    outcome = report(results, about, is_quick=options.quick)
    print(table(outcome))
    _say(f"Kept in {os.path.relpath(keep(outcome, options.json))}.\n")
    return 1 if options.strict and not all(outcome.verdicts) else 0


def _names() -> list[str]:
    return [benchmark.name for benchmark in BENCHMARKS]


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, and print what was measured.")
    parser.add_argument("names", nargs="*", metavar="name", help="only these benchmarks (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: whether it works, rather than how fast")
    parser.add_argument("--json", type=Path, metavar="PATH", help="keep the results here too")
    parser.add_argument("--list", action="store_true", help="say what there is, and measure nothing")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(_names()):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(_names())}")
    return options


def _run(benchmark: Benchmark, is_quick: bool) -> Result:
    _say(f"{benchmark.name:<18} {benchmark.what} ... ")
    folder = Path(tempfile.mkdtemp(prefix=f"{benchmark.name}-", dir=BUILD))
    began = time.monotonic()
    try:
        measures = anyio.run(benchmark.measure, Room(folder, is_quick))
    finally:
        shutil.rmtree(folder)
    seconds = time.monotonic() - began
    _say(f"{seconds:.1f} s\n")
    return result(benchmark, measures, seconds)


def _say(text: str) -> None:
    """Progress goes beside the table, which may be kept in a file."""
    print(text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
