"""Asking a tool whether a call in doubt happened: a help for whoever decides, and no decision."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from checkrein.core.events import CallChecked
from checkrein.core.words import Answer, Outcome
from checkrein.runtime.spec import Ended

CHECK_PREFIX: Final = "check:"
CHECK_SECONDS: Final = 30.0

_ANSWERS: Final[dict[Any, Answer]] = {
    True: Answer.HAPPENED,
    False: Answer.DID_NOT_HAPPEN,
    "happened": Answer.HAPPENED,
    "did_not_happen": Answer.DID_NOT_HAPPEN,
}


def checked(ended: Ended, *, id: str, at: float, call: str) -> CallChecked:
    """What came of it. A tool answers True or False, `happened` or `did_not_happen`; or an object with `happened` and
    the `result` that the call would have had. Anything else means that it cannot tell."""
    if ended.outcome is not Outcome.COMPLETED or ended.result is None:
        return CallChecked(id=id, at=at, call=call, note=ended.error or "the check did not come to an end")
    said: Any = msgspec.json.decode(ended.result)
    result: Any = None
    if isinstance(said, dict):
        said, result = said.get("happened"), said.get("result")
    answer = _ANSWERS.get(said) if isinstance(said, bool | str) else None
    raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
    return CallChecked(id=id, at=at, call=call, answer=answer, result=raw)
