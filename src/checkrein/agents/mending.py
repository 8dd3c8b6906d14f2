"""What a person can mend pauses a run instead of failing it."""

from __future__ import annotations

from typing import Final

from checkrein.core.events import Need
from checkrein.errors import CallFailed, ModelNotFound, ModelRateLimited, ModelUnauthorised, ModelUnavailable
from checkrein.runtime.driver import Driver

MENDABLE: Final = {
    kind.code: kind.remedy for kind in (ModelUnauthorised, ModelNotFound, ModelRateLimited, ModelUnavailable)
}
"""Failures of a model that a person can mend, and how."""


async def mend(driver: Driver, failed: CallFailed) -> None:
    """Pause until a person has mended what made a model call fail, and resumed. Raises `failed` if nobody can."""
    code = failed.error.partition(":")[0]
    if code not in MENDABLE:
        raise failed
    await driver.need(Need(code=code, what=failed.message, remedy=MENDABLE[code]), about=failed.call)
