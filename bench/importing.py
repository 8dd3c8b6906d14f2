"""What it costs to have Checkrein at all: imported in a new process, and on the command line.

Every side is a process from its start to its end, and they take turns. What counts is what comes on top of a Python
that does nothing, in the same round. Bytecode is compiled before, as it is when a package is installed, and kept in a
folder of its own, whatever the environment says about that. Processor time stands beside: on a busy machine a process
waits as well.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import anyio

from bench.harness import MILLI, Benchmark, Measure, Room, Rounds, Target, Turn
from bench.report import ROOT

TARGET: Final = Target("at most", 150.0)
NONE: Final = Target("at most", 0.0)
PROVIDERS: Final = ("aiohttp", "anthropic", "genai_prices", "mcp", "openai", "pydantic_ai", "httpx", "httpx2")
WIRES: Final = "checkrein.models.openai", "checkrein.models.anthropic.model", "checkrein.models.pydantic_ai"
LOADED: Final = f"""
import sys
from checkrein import Agent, Runtime, tool
agent = Agent("named", model="openai:gpt-5")
print(*[name for name in {(*PROVIDERS, *WIRES)!r} if name in sys.modules])
"""
"""Which modules of providers are imported by a program that has named a model and has not asked it yet."""
SIDES: Final = {
    "bare": "pass",
    "import": "import checkrein",
    "names": "from checkrein import Agent, Runtime, tool",
    "version": "from checkrein.cli import main; main(['--version'])",
    "help": "from checkrein.cli import main; main(['--help'])",
}


async def measure(room: Room) -> list[Measure]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(room.folder / "bytecode")
    processor: dict[str, list[float]] = {name: [] for name in SIDES}
    rounds = Rounds(**{name: _process(code, environment, processor[name]) for name, code in SIDES.items()})
    await rounds.warm_up(2)
    for samples in processor.values():
        samples.clear()
    await rounds.run(room.count(15, 3))
    loaded = await anyio.run_process([sys.executable, "-c", LOADED], cwd=ROOT, env=environment)
    names = loaded.stdout.decode().split()
    return [
        _added("import checkrein, added to a bare Python", rounds, "import", TARGET),
        _added("from checkrein import Agent, Runtime, tool; added", rounds, "names", TARGET),
        Measure(what="of that processor time", value=_more(processor, "names") * MILLI, unit="ms"),
        Measure(
            what="modules of providers imported before one is used",
            value=len(names),
            unit="",
            target=NONE,
            note=", ".join(names),
        ),
        Measure(what="checkrein --help, from start to end", value=rounds.median("help") * MILLI, unit="ms"),
        Measure(what="checkrein --version, from start to end", value=rounds.median("version") * MILLI, unit="ms"),
        Measure(what="a bare Python, from start to end", value=rounds.median("bare") * MILLI, unit="ms"),
    ]


def _process(code: str, environment: Mapping[str, str], processor: list[float]) -> Turn:
    async def turn() -> Sequence[float]:
        used, began = _used_by_children(), time.perf_counter()
        await anyio.run_process([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        processor.append(_used_by_children() - used)
        return [seconds]

    return turn


def _used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _added(what: str, rounds: Rounds, side: str, target: Target) -> Measure:
    return Measure(what=what, value=_more(rounds.samples, side) * MILLI, unit="ms", target=target)


def _more(samples: Mapping[str, Sequence[float]], side: str) -> float:
    """What a side takes more than a bare Python, in the same round."""
    return median(ours - bare for ours, bare in zip(samples[side], samples["bare"], strict=True))


BENCHMARK: Final = Benchmark("importing", "what an import and the command line cost", measure)
