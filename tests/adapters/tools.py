"""Tools that every framework is given. They keep a log of their own, which is the witness of what was done."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import date
from typing import Any

from tests.support.witness import note


def note_down(log: str, word: str) -> str:
    """Write a word down."""
    note(log, word)
    return f"noted {word}"


def tick(log: str) -> str:
    """Block, and tick."""
    for _ in range(2000):
        note(log, "tick")
        time.sleep(0.02)
    return "ticked"


def slowly(log: str, word: str) -> str:
    """Write a word down, and return once the file `<log>.go` is there."""
    note(log, f"begin {word}")
    while not os.path.exists(f"{log}.go"):
        time.sleep(0.02)
    note(log, f"end {word}")
    return f"did {word}"


async def quickly(log: str, word: str) -> str:
    """Write a word down on the event loop."""
    note(log, f"async {word}")
    await asyncio.sleep(0)
    return f"async {word}"


def take_back(call: Any) -> None:
    note(call.arguments["log"], f"undone {call.arguments['word']}")


def draw(log: str) -> str:
    """Draw the next card, and return once the file `<log>.<card>.go` is there."""
    card = 0
    while True:
        try:
            os.close(os.open(f"{log}.{card}", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            card += 1
    note(log, f"card {card}")
    while not os.path.exists(f"{log}.{card}.go"):
        time.sleep(0.02)
    note(log, "drawn")
    return f"card {card}"


async def order(log: str, what: str) -> dict[str, Any]:
    """Order something on the event loop, and return once the file `<log>.go` is there."""
    note(log, f"order {what}")
    while not os.path.exists(f"{log}.go"):
        await asyncio.sleep(0.02)
    return {"number": 7, "what": what}


def call_off(call: Any) -> None:
    note(call.arguments["log"], f"called off {call.result}")


def publish(log: str, word: str) -> str:
    """Publish a word: a person is asked first."""
    note(log, f"published {word}")
    return "out"


def fails(log: str) -> str:
    """Always fails."""
    note(log, "failing")
    raise LookupError("no such thing")


@dataclass
class Place:
    name: str
    since: date


def where(log: str) -> Place:
    """Say where."""
    note(log, "where")
    return Place("Bern", date(1191, 1, 1))
