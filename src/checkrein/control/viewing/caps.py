"""The caps of a run in words: how much is used of what is allowed."""

from __future__ import annotations

from checkrein.control.view import CapView
from checkrein.core.conditions import Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns, caps
from checkrein.core.state import State


def cap_views(state: State, at: float) -> tuple[CapView, ...]:
    """Every cap of the run, from left to right, with what a resume has granted."""
    spent = state.spent(at)
    views = []
    for cap in caps(state.stop_when):
        used, allowed = cap.standing(spent, state.grants)
        views.append(CapView(label=cap.label, used=used, allowed=allowed, words=_words(cap, used, allowed)))
    return tuple(views)


def clock(seconds: float) -> str:
    """`3:10`, `1:02:05`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _words(cap: object, used: float | None, allowed: float) -> str:
    match cap:
        case Cost():
            return f"{_money(used)} of {_money(allowed)}"
        case Elapsed():
            return f"{clock(used or 0)} of {clock(allowed)}"
        case Tokens():
            return f"{used or 0:,.0f} of {allowed:,.0f} tokens"
        case Turns():
            return f"turn {used:.0f} of {allowed:.0f}"
        case ToolCalls():
            return f"tool call {used:.0f} of {allowed:.0f}"
        case Effects():
            return f"effect {used:.0f} of {allowed:.0f}"
        case Repeats():
            return f"repeat {used:.0f} of {allowed:.0f}"
    raise AssertionError(cap)


def _money(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.2f}"
