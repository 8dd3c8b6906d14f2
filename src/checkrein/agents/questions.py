"""A question that a program puts to a model, as a call."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from checkrein.agents.asking import ModelPerformance
from checkrein.agents.retrying import Retries
from checkrein.core.events import Json
from checkrein.core.words import CallKind
from checkrein.models.history import repair
from checkrein.models.messages import Message, Request, Settings, User
from checkrein.models.port import Model
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Performance, Permit, Spec


def question(
    driver: Driver,
    model: Model,
    messages: Sequence[Message],
    *,
    instructions: str,
    output_schema: Json | None,
    settings: Settings,
    step: int | None,
) -> Spec:
    """It is asked again by itself where that may help, and carries what a person has told the program meanwhile."""
    retries = Retries()

    def perform(permit: Permit) -> Performance:
        told = messages if permit.instruction is None else repair([*messages, User(permit.instruction)])
        return ModelPerformance(
            model,
            Request(instructions, tuple(told), output_schema=output_schema, settings=settings),
            driver.shows(permit),
            secrets=driver.secrets,
            retries=retries,
        )

    return Spec(
        kind=CallKind.MODEL,
        name=model.name,
        perform=perform,
        arguments=msgspec.json.encode({"instructions": instructions, "messages": messages}),
        step=step,
        carries=True,
    )
