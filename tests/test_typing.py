"""What a type checker makes of a program that uses Checkrein: mypy, as strict as it can be, on what the docs print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BLOCK: Final = re.compile(r"```python\n# file: (\S+)\n(.*?)```", re.DOTALL)
PAGES: Final = (
    "README.md",
    *(f"docs/{page}.md" for page in ("tutorial/first-agent", "howto/approvals", "howto/caps", "howto/programs")),
)

PROMISES: Final = """
from dataclasses import dataclass
from typing import Any, assert_type

from checkrein import Agent, Context, Receipt, Run, Runtime, Settling, Undone, agent, tool
from checkrein.models import Assistant


@dataclass
class Report:
    lines: list[str]


def undo(call: Undone) -> None: ...


@tool
def add(a: int, b: int = 1) -> int:
    return a + b


@tool(effect="reversible", undo=undo, approval=True)
async def send(to: str) -> bytes:
    return to.encode()


assert_type(add(1, b=2), int)
add("1")  # wrong: argument
add(1, c=2)  # wrong: argument
tool(add.function, effect="irreversable")  # wrong: word
tool(add.function, effect="irreversible", approval=False)

writer = Agent("writer", model="openai:gpt-5", tools=[add, send])
several = [add, send]
Agent("other", model="openai:gpt-5", tools=several)
reporter = Agent("reporter", model="openai:gpt-5", output=Report)
assert_type(writer, Agent[str])
assert_type(reporter, Agent[Report])
both: list[Agent] = [writer, reporter]


@agent
async def program(ctx: Context, goal: str) -> Report:
    assert_type(await ctx.model("Say."), Assistant)
    assert_type(await ctx.model("Say.", output=Report), Report)
    return await ctx.spawn(reporter, goal)


async def main(runtime: Runtime) -> None:
    assert_type(await send("ann"), bytes)
    run = await runtime.start(reporter, "Report.")
    assert_type(run, Run[Report])
    assert_type(await run.result(), Report)
    assert_type(await (await runtime.start(program, "Report.")).result(), Report)
    assert_type(await (await runtime.start("reporter", "Report.")).result(), Any)
    receipt = await run.cancel()
    assert_type(receipt, Receipt | Settling)
    print(receipt.status, receipt.calls, receipt.effects, receipt.timing_ms.settled, receipt.waiting_for)
    async for event in run.events():
        assert_type(event.type, str)
"""


def test_a_strict_type_checker_finds_in_programs_what_is_wrong_with_them_and_nothing_else(tmp_path: Path) -> None:
    """README, tutorial, the pages on approvals, caps and programs; and what `@tool`, `output=` and `Run` promise."""
    programs = [found for page in PAGES for found in BLOCK.findall((ROOT / page).read_text())]
    for name, code in [*programs, ("promises.py", PROMISES)]:
        (tmp_path / name).write_text(code)
    wrong = [f"promises.py:{n}:" for n, line in enumerate(PROMISES.splitlines(), 1) if "# wrong" in line]

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "--config-file=",
         "--cache-dir", str(ROOT / ".mypy_cache" / "docs"), *sorted(path.name for path in tmp_path.glob("*.py"))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip

    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert len(programs) == len(dict(programs)) >= 6
    assert [line for line in errors if not line.startswith(tuple(wrong))] == [], checked.stdout + checked.stderr
    assert {place for place in wrong if any(line.startswith(place) for line in errors)} == set(wrong)
