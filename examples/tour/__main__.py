"""`python -m examples.tour` plays the tour; `--fast` in some ten seconds instead of a minute."""

from __future__ import annotations

import asyncio
import sys
from functools import partial

from examples.tour.tour import play

if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--fast"]):
        sys.exit("usage: python -m examples.tour [--fast]")
    try:
        sys.exit(asyncio.run(play(partial(print, flush=True), fast="--fast" in sys.argv)))
    except KeyboardInterrupt:
        sys.exit(130)
