"""Play storms: `python -m tests.torture.storms SEED [HOW MANY] [SIDE BY SIDE] [--clock]`; prints their stories."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.torture.storms.season import play

if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if not word.startswith("--")]
    first, many, beside = (*numbers, *(1, 1)[len(numbers) - 1 :])
    with tempfile.TemporaryDirectory() as folder:
        season = play(Path(folder), first, many, side_by_side=beside, with_clock="--clock" in sys.argv, aloud=True)
    print(season)
    sys.exit(bool(season.wrong))
