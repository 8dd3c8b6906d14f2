"""`python -m checkrein.testing.provider --port 0 --scenario FILE.json`: the provider as a program.

It prints its addresses as one line of JSON and serves until it is interrupted. Its log is at GET /_log.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from checkrein.errors import MisuseError
from checkrein.testing.provider.scenario import Reply, by_turn
from checkrein.testing.provider.server import KEY, Address, Provider

HELLO = [Reply("Hello from a provider on this machine.", tokens_per_second=20)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m checkrein.testing.provider", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--scenario", type=Path, help="a JSON file: a list of replies; without it, a greeting")
    parser.add_argument("--by-turn", action="store_true", help="choose the reply by the history, not by the order")
    parser.add_argument("--key", default=KEY, help="the only key accepted; empty accepts anybody")
    parser.add_argument("--model", action="append", help="a model, or a pattern such as gpt-*, that it has; repeat")
    parser.add_argument("--with-stdin", action="store_true", help="end when standard input is closed")
    return parser.parse_args()


async def serve(options: argparse.Namespace, replies: list[Reply]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.with_stdin:
        loop.add_reader(sys.stdin, lambda: stop.set() if not os.read(0, 4096) else None)
    script = by_turn(replies) if options.by_turn else replies
    async with Provider(script, key=options.key or None, models=options.model, port=options.port) as provider:
        address = Address(provider.openai_url, provider.anthropic_url, provider.key, provider.port, os.getpid())
        print(msgspec.json.encode(address).decode(), flush=True)
        await stop.wait()


def main() -> None:
    options = arguments()
    replies = HELLO
    if options.scenario is not None:
        try:
            replies = msgspec.json.decode(options.scenario.read_bytes(), type=list[Reply])
        except (OSError, msgspec.MsgspecError, MisuseError) as error:
            sys.exit(f"The scenario {options.scenario} cannot be used: {error}")
    asyncio.run(serve(options, replies))


if __name__ == "__main__":
    main()
