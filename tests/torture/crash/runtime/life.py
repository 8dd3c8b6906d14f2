"""The two kinds of processes that are killed: a runtime that drives runs, and a person who steers them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from checkrein import Agent, Runtime
from checkrein.control.control import Control
from checkrein.core.enums import Answer, CallKind, EffectState, Status, Undo, When
from checkrein.core.events import CallStarted, Event
from checkrein.core.state import Doubt, State
from checkrein.errors import Refused
from checkrein.journal import open_journal
from checkrein.journal.base import Appended, Journal
from checkrein.journal.sqlite import SqliteJournal
from checkrein.processes.identity import this_process
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.tools import TOOLS, agent, long_agent, url

SETTLE_SECONDS: Final = 600.0
"""A cancel waits for its undos however often it is interrupted."""


# -- a runtime


def be_runtime(where: Path, life: str, goals: Sequence[str], *, stops_at: int = 0, **options: Any) -> int:
    """Drive runs with these goals, beginning those that there are not yet, until all are finished.

    With `stops_at` the process freezes when it has committed so many permits of tools, before it has used the last.
    """
    os.environ[diary.FOLDER], os.environ[diary.LIFE] = str(where), life
    os.environ["TMPDIR"] = str(where)
    if stops_at:
        _freeze_at(stops_at)
    asyncio.run(_drive(where, goals, agent(), options))
    return 0


def be_long_runtime(where: Path, life: str, *, lies: bool = False, **options: Any) -> int:
    """Drive a run of the agent whose calls do not end, until somebody ends it."""
    os.environ[diary.FOLDER], os.environ[diary.LIFE] = str(where), life
    os.environ["TMPDIR"] = str(where)
    asyncio.run(_drive(where, ["long"], long_agent(lies=lies), options))
    return 0


def _freeze_at(count: int) -> None:
    append = SqliteJournal.append
    left = count

    async def append_and_freeze(self: SqliteJournal, run: str, events: Sequence[Event], **how: Any) -> Appended:
        nonlocal left
        appended = await append(self, run, events, **how)
        permits = sum(isinstance(event, CallStarted) and event.kind is CallKind.TOOL for event in events)
        if left > 0 and (left := left - permits) <= 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        return appended

    SqliteJournal.append = append_and_freeze  # type: ignore[method-assign]


async def _drive(where: Path, goals: Sequence[str], torture: Agent, options: dict[str, Any]) -> None:
    async with Runtime(url(where), agents=[torture], settle_seconds=SETTLE_SECONDS, **options) as runtime:
        begun = {row.goal for row in await runtime.runs()}
        for goal in goals:
            if goal not in begun:
                await runtime.start(torture, goal)
        while not await all_over(runtime.journal, len(goals)):
            await asyncio.sleep(0.02)


async def all_over(journal: Journal, count: int) -> bool:
    """Whether so many runs are finished, with nothing left to undo."""
    rows = await journal.runs(limit=1000)
    if len(rows) < count:
        return False
    for row in rows:
        if not (await journal.load(row.id)).is_finished:
            return False
        if any(effect.wanted for effect in await journal.effects(row.id, {EffectState.OPEN})):
            return False
    return True


# -- a person


def be_person(where: Path, seed: int, count: int, *, is_calm: bool) -> int:
    """Answer what is in doubt, from the diary. Unless calm: steer the runs about at random as well."""
    os.environ[diary.FOLDER] = str(where)
    asyncio.run(_steer(where, Random(seed), count, is_calm))
    return 0


async def _steer(where: Path, dice: Random, count: int, is_calm: bool) -> None:
    async with await open_journal(url(where)) as journal:
        person = _Person(where, journal, dice, is_calm)
        while not await all_over(journal, count):
            for row in await journal.runs(limit=1000):
                await person.look_at(await journal.load(row.id))
            await asyncio.sleep(dice.uniform(0.005, 0.08))


class _Person:
    def __init__(self, where: Path, journal: Journal, dice: Random, is_calm: bool) -> None:
        self._where = where
        self._journal = journal
        self._control = Control(journal, this_process())
        self._dice = dice
        self._is_calm = is_calm

    async def look_at(self, state: State) -> None:
        with suppress(Refused):  # it has changed since it was looked at
            for call, doubt in state.doubts.items():
                if doubt.person and not doubt.unanswered and (self._is_calm or self._dice.random() < 0.5):
                    await self._answer(state, call, doubt)
            if self._is_calm:
                if state.status is Status.PAUSED:
                    await self._control.resume(state.run, by="person", wait=1)
            elif self._dice.random() < 0.15:
                await self._meddle(state)

    async def _answer(self, state: State, call: str, doubt: Doubt) -> None:
        """Say what the tool's own diary says; where that is open, whatever a person might say."""
        key = f"{state.run}/{call}"
        lines = [line for line in diary.read(self._where) if line.key == key and line.attempt == doubt.attempt]
        said = {line.what for line in lines}
        if "done" in said:
            answer = Answer.HAPPENED
        elif "begin" not in said:
            answer = Answer.DID_NOT_HAPPEN
        else:
            can_be_undone = TOOLS[doubt.name].undo is not None
            answer = self._dice.choice([Answer.HAPPENED, Answer.DID_NOT_HAPPEN, *[Answer.UNDO] * can_be_undone])
        result = f"{lines[0].item} is done" if answer is Answer.HAPPENED else None
        await self._control.resolve(state.run, call, answer, by="person", result=result)

    async def _meddle(self, state: State) -> None:
        control, dice, run = self._control, self._dice, state.run
        patience = dice.choice((0.0, 0.0, 0.3, 2.0))
        match dice.choice(("pause", "resume", "resume", "redirect", "cancel", "abort", "ask", "retry")):
            case "pause":
                await control.pause(run, by="person", wait=patience)
            case "resume":
                text = dice.choice((None, "Hurry up."))
                await control.resume(run, text, by="person", wait=patience)
            case "redirect":
                when = dice.choice((When.NOW, When.NEXT_STEP))
                await control.redirect(run, "Do something else.", when=when, by="person", wait=patience)
            case "cancel":
                undo = dice.choice((Undo.OPEN, Undo.OPEN, Undo.ALL, Undo.NONE))
                await control.cancel(run, undo=undo, by="person", wait=patience)
            case "abort" if state.live:
                await control.abort(run, dice.choice(sorted(state.live)), by="person", wait=patience)
            case "ask":
                await control.ask(run, "How far are you?", by="person", wait=patience)
            case "retry":
                left = await self._journal.effects(run, {EffectState.LEFT})
                for effect in left[:1]:
                    await control.retry_undo(run, effect.id, by="person")
            case _:
                pass
