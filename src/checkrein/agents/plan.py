"""The task list a person sees: published by the author or by the model, walked through step by step.

The model has one built-in tool for it. A call of it touches nothing in the world, so it needs no permit: what it
says is in the recorded answer of the model, and is read off that again when the run is played again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from checkrein.core.events import Event, PlanPublished, StepFinished, StepStarted
from checkrein.models.messages import ToolCall, ToolSpec, as_json

PLAN_TOOL: Final = "plan"

SPEC: Final = ToolSpec(
    name=PLAN_TOOL,
    description=(
        "Show the person who watches what you are doing. `steps` is the list of what is still to be done, a few short "
        "titles in order; it replaces every step that you have not begun. `step` is the number of the step that you "
        "begin now, counted from 1 over the whole list; the ones before it are thereby done. Call it together with the "
        "first tool of a step."
    ),
    schema=as_json(
        {
            "type": "object",
            "properties": {
                "steps": {"type": ["array", "null"], "items": {"type": "string"}},
                "step": {"type": ["integer", "null"], "minimum": 1},
            },
            "additionalProperties": False,
        }
    ),
)


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[str] | None = None
    step: int | None = None


class Plan:
    """The steps of one run. `note` records an event of the program unless it is recorded already."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._titles: list[str] = []
        self._published = 0
        self._begun = 0
        self._opened: set[int] = set()
        self.step: int | None = None
        """The number of the step at work."""

    def publish(self, steps: Sequence[str]) -> None:
        """Replace every step that has not begun."""
        self._titles = [*self._titles[: self._begun], *steps]
        self._published += 1
        self._note(PlanPublished(id=f"plan.{self._published}", at=0.0, steps=tuple(self._titles)))

    def begin(self, number: int) -> None:
        """Begin a step; the one at work is thereby finished. Beginning it again changes nothing."""
        if number == self.step:
            return
        self.finish()
        self.step = number
        self._begun = max(self._begun, number)
        self._note(StepStarted(id=f"step.{number}.started", at=0.0, step=number, title=self._titles[number - 1]))

    def open(self, title: str) -> int:
        """Begin a step without finishing another; its number. One that no plan foresaw goes to the end of the list."""
        foreseen = [n for n, known in enumerate(self._titles, 1) if n not in self._opened and known == title]
        if foreseen:
            number = foreseen[0]
        else:
            self._titles.append(title)
            number = len(self._titles)
        self._opened.add(number)
        self._begun = max(self._begun, number)
        self._note(StepStarted(id=f"step.{number}.started", at=0.0, step=number, title=title))
        return number

    def finish(self, number: int | None = None) -> None:
        """The step at work (or another one) is done."""
        number = self.step if number is None else number
        if number is None:
            return
        self._note(StepFinished(id=f"step.{number}.finished", at=0.0, step=number))
        if number == self.step:
            self.step = None

    # -- what a model says

    def obey(self, call: ToolCall) -> str:
        """Do what a call of the built-in tool asks for and return what the model is told. Raises `ValueError`."""
        asked = msgspec.json.decode(bytes(call.arguments), type=_Arguments)
        if asked.steps is not None:
            self.publish([title.strip() for title in asked.steps if title.strip()])
        if asked.step is not None:
            self._check(asked.step)
            self.begin(asked.step)
        return f"At step {self.step} of {len(self._titles)}." if self.step else f"{len(self._titles)} steps planned."

    def _check(self, number: int) -> None:
        if not 1 <= number <= len(self._titles):
            raise ValueError(f"There is no step {number}; there are {len(self._titles)}.")
        if number < self._begun:
            raise ValueError(f"Step {number} is done already; step {self._begun} is the latest that has begun.")
