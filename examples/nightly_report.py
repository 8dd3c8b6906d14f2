"""A program without a model: a nightly job that copies, counts and publishes, and can be stopped at any moment.

    python examples/nightly_report.py IN_FOLDER OUT_FOLDER

It shows that nothing here is about models: permits, undo, pause, crash and replay are the same for plain work. Kill it
with -9 and start it again with the same store: what was copied is not copied again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from checkrein import Context, Runtime, Undone, agent


def unstage(call: Undone) -> None:
    """Undo of `stage`: remove the copy. Removing what is not there is fine."""
    Path(call.arguments["target"]).unlink(missing_ok=True)


def stage(source: str, target: str) -> int:
    """Copy a file; runs in a worker process and can be killed in the middle."""
    shutil.copyfile(source, target)
    return Path(target).stat().st_size


def list_files(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir() if path.is_file())


def count_words(path: str) -> int:
    return len(Path(path).read_text(errors="replace").split())


async def publish(path: str, report: dict[str, Any]) -> str:
    from checkrein import current_call

    with current_call().write(path) as file:  # appears at once, and only if this succeeds
        json.dump(report, file, indent=2)
    return path


@agent
async def nightly(ctx: Context, goal: str) -> dict[str, Any]:
    """The goal is `IN_FOLDER -> OUT_FOLDER`."""
    source, target = (Path(part.strip()) for part in goal.split("->"))
    ctx.plan(["Stage", "Count", "Publish"])
    async with ctx.step("Stage"):
        # A call, because the folder may look different at a replay.
        names = await ctx.call(list_files, str(source), effect="none")
        sizes = [await ctx.call(stage, str(source / name), str(target / name), undo=unstage) for name in names]
    async with ctx.step("Count"):
        staged = [str(target / name) for name in names]
        words = await asyncio.gather(*(ctx.call(count_words, path, effect="none", idempotent=True) for path in staged))
    async with ctx.step("Publish"):
        report = {"files": len(names), "bytes": sum(sizes), "words": sum(words), "id": str(ctx.uuid())}
        await ctx.call(publish, str(target / "report.json"), report, changes="the report")
    return report


async def main(source: str, target: str, store: str) -> None:
    async with Runtime(store, agents=[nightly]) as runtime:
        unfinished = [row for row in await runtime.runs() if row.status not in ("completed", "failed", "cancelled")]
        if unfinished:
            run = await runtime.get(unfinished[0].id)
        else:
            run = await runtime.start(nightly, f"{source} -> {target}")
        print(json.dumps(await run.result()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A nightly job that can be stopped at any moment.")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--store", default=None)
    given = parser.parse_args()
    Path(given.target).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(given.source, given.target, given.store or f"sqlite:///{given.target}/.runs.db"))
