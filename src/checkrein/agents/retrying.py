"""When a model is asked again by itself: failures that may pass, a few times, at growing intervals."""

from __future__ import annotations

import random
from typing import Final

from checkrein.errors import ModelError

RETRIES: Final = 5
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
LONGEST_ASKED_SECONDS: Final = 300.0
"""A provider that wants to be left alone for longer than this is put to a person instead."""


class Retries:
    """How often one call of a model was asked again, and when it may be again."""

    def __init__(self, most: int = RETRIES) -> None:
        self._left = most
        self._wait = FIRST_SECONDS

    def after(self, error: BaseException) -> float | None:
        """The seconds to wait before it is asked again; None when a person has to look at it."""
        if not isinstance(error, ModelError) or not error.may_retry or not self._left:
            return None
        asked = getattr(error, "retry_after", None)
        if asked is not None and asked > LONGEST_ASKED_SECONDS:
            return None
        self._left -= 1
        wait, self._wait = self._wait, min(2 * self._wait, LONGEST_SECONDS)
        # A little later than asked for, and each a little differently: those who failed together do not come back
        # together.
        return asked * random.uniform(1.0, 1.1) if asked is not None else wait * random.uniform(0.5, 1.5)
