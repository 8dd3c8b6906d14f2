"""Runs as they look at certain moments, made by hand."""

from __future__ import annotations

from typing import Any

from checkrein.control.view import CallView, CapView, EffectView, RunView, Shown, StepView
from checkrein.core.conditions import Usage
from checkrein.core.consequences import VerbControl
from checkrein.core.enums import CallKind, EffectState, Status, Verb

NOW = 1_000.0


def controls(**changes: VerbControl) -> dict[Verb, VerbControl]:
    usual = {
        Verb.PAUSE: VerbControl(True, "waits for score_churn, then holds"),
        Verb.RESUME: VerbControl(False, "it is running"),
        Verb.REDIRECT: VerbControl(True, "stops score_churn, keeps 2 finished steps"),
        Verb.CANCEL: VerbControl(True, "stops now · takes back draft and lock · keeps the text so far"),
        Verb.ASK: VerbControl(True, "answers from a copy of the context, the run goes on"),
    }
    return {**usual, **{Verb(name): control for name, control in changes.items()}}


def step(number: int, title: str, shown: Shown, **rest: Any) -> StepView:
    return StepView(number=number, title=title, shown=shown, **rest)


def call(id: str, name: str, shown: Shown = Shown.RUNNING, now: str = "running", **rest: Any) -> CallView:
    return CallView(
        id=id, name=name, **{"kind": CallKind.TOOL, "shown": shown, "now": now, "started_at": NOW - 3, **rest}
    )


def said(text: str, shown: Shown = Shown.RUNNING, **rest: Any) -> CallView:
    return call("m1", "scripted", shown, kind=CallKind.MODEL, text=text, **rest)


def effect(what: str, now: EffectState, **rest: Any) -> EffectView:
    return EffectView(id=f"e-{what}", what=what, now=now, **rest)


def view(**changes: Any) -> RunView:
    """Four steps, the third at work."""
    usual: dict[str, Any] = {
        "id": "r-7f3",
        "status": Status.RUNNING,
        "agent": "churn",
        "goal": "Which customers will churn this quarter?",
        "thread": "Q4 retention",
        "elapsed_seconds": 12.4,
        "planned": True,
        "steps": (
            step(1, "Fetch customer list", Shown.DONE, started_at=NOW - 12, finished_at=NOW - 9.1),
            step(2, "Join against MRR table", Shown.DONE, started_at=NOW - 9, finished_at=NOW - 3.2),
            step(3, "Score churn risk", Shown.RUNNING, started_at=NOW - 3, calls=("c1",)),
            step(4, "Write summary memo", Shown.QUEUED),
        ),
        "calls": (call("c1", "score_churn", step=3),),
        "effects": (effect("draft memo", EffectState.OPEN, can_undo=True), effect("export", EffectState.OPEN)),
        "usage": Usage(turns=7, input_tokens=5_000, output_tokens=1_100, cost_usd=0.04),
        "caps": (
            CapView(label="Turns(50)", used=7, allowed=50, words="turn 7 of 50"),
            CapView(label="Tokens(50000)", used=6_100, allowed=50_000, words="6,100 of 50,000 tokens"),
            CapView(label="Cost(1)", used=0.04, allowed=1, words="$0.04 of $1.00"),
        ),
        "controls": controls(),
    }
    return RunView(**{**usual, **changes})
