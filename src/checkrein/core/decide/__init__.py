"""Whether something may happen: `decide(state, command)` gives the events that make it so, or a refusal.

A decision is made in full knowledge of the state it is given. That this was the latest state is not known here: it is
checked by the journal when the events are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from checkrein.core import commands
from checkrein.core.commands import Command
from checkrein.core.decide import calls, endings, verbs
from checkrein.core.decide.verdict import Joined, Refusal, Verdict
from checkrein.core.state import State

__all__ = ["Joined", "Refusal", "Verdict", "decide"]


def decide(state: State, command: Command) -> Verdict:
    """The events to append for `command`, facts first, or why there are none."""
    return _DECISIONS[type(command)](state, command)


# fmt: off
_DECISIONS: Final[Mapping[type[Command], Callable[[State, Any], Verdict]]] = {
    commands.PauseRun:        verbs.pause,
    commands.ResumeRun:       verbs.resume,
    commands.RedirectRun:     verbs.redirect,
    commands.CancelRun:       verbs.cancel,
    commands.AskRun:          verbs.ask,
    commands.AbortCall:       verbs.abort,
    commands.ApproveCall:     verbs.approve,
    commands.DenyCall:        verbs.deny,
    commands.ResolveCall:     verbs.resolve,
    commands.RetryUndo:       verbs.retry_undo,
    commands.HaltRun:         endings.halt,
    commands.TakeOver:        calls.take_over,
    commands.StartCall:       calls.start_call,
    commands.StartUndo:       calls.start_undo,
    commands.FinishCall:      calls.finish_call,
    commands.LeaveEffect:     calls.leave_effect,
    commands.RequestApproval: calls.request_approval,
    commands.TripCondition:   endings.trip_condition,
    commands.SettleVerb:      endings.settle_verb,
    commands.FinishRun:       endings.finish_run,
}
# fmt: on
