"""The other process of a race: `python -m tests.torture.races.rival <database>`.

It is told on its standard input whom to cancel and when, one order a line, and answers on its standard output. It knows
nothing but the journal's file.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from checkrein.control.control import Control
from checkrein.core.enums import Undo
from checkrein.core.receipts import Receipt
from checkrein.errors import Refused
from checkrein.journal import SqliteJournal
from checkrein.processes.identity import this_process

WAIT_SECONDS = 60.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    request: str
    seconds: float
    """How long to wait first."""
    undo: Undo


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """Either a receipt or a refusal."""

    request: str
    receipt: Receipt | None = None
    code: str = ""
    message: str = ""


async def _obey(control: Control, order: Order) -> None:
    await asyncio.sleep(order.seconds)
    try:
        answer = await control.cancel(
            order.run, by="rival", undo=order.undo, request_id=order.request, wait=WAIT_SECONDS
        )
    except Refused as refused:
        reply = Reply(request=order.request, code=refused.code, message=refused.message)
    else:
        receipt = answer if isinstance(answer, Receipt) else None
        reply = Reply(request=order.request, receipt=receipt, message=repr(answer))
    sys.stdout.write(msgspec.json.encode(reply).decode() + "\n")
    sys.stdout.flush()


async def main(database: str) -> None:
    async with SqliteJournal(database) as journal:
        control = Control(journal, this_process())
        async with asyncio.TaskGroup() as group:
            while line := await asyncio.to_thread(sys.stdin.readline):
                group.create_task(_obey(control, msgspec.json.decode(line, type=Order)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
