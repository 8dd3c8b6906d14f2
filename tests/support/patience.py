"""How long a test waits on a machine that has other things to do. Standard library only: tools of tests import it too.

Wait for a fact with an `until` and `PATIENCE_SECONDS`: a fact that comes late is still a fact. Only where the promise
itself is about time, give the bound of an idle machine to `within`. What came before what is never a matter of load.
"""

from __future__ import annotations

import os

PATIENCE_SECONDS = 90.0
"""Nothing is expected to take that long, whatever else the machine does."""

PATIENT_GRACE_SECONDS = 10.0
"""For a tool that ends as soon as it is told to, so that it is not let go because the machine is busy."""


def within(seconds: float) -> float:
    """What takes `seconds` at most on an idle machine: longer, as more want to run than there are cores."""
    return seconds * max(1.0, 2.0 * _load() / (os.cpu_count() or 1))


def _load() -> float:
    """How many want to run: on average over a minute, or right now if those are more."""
    try:
        with open("/proc/loadavg") as file:
            average, _, _, now, *_ = file.read().split()
    except OSError:
        return os.getloadavg()[0]
    return max(float(average), float(now.split("/")[0]))
