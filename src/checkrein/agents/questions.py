"""What a program asks: of a model of ours, of a model that somebody else asks for it, and of a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from checkrein.agents.loop import is_priced, mend, tokens_allowed
from checkrein.calls import arguments as values
from checkrein.calls.answer import (
    AnswerExecution,
    Asked,
    RecordedAnswer,
    SaidMessage,
    Source,
    SourceModel,
    asked_for,
    assistant,
    said_in,
    user,
)
from checkrein.calls.base import CallRequest, Execution, KnownExecution, Permit
from checkrein.calls.model import ModelExecution
from checkrein.core.enums import CallKind
from checkrein.core.events import Json
from checkrein.driver.permits import Result
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import CallFailed, Interrupted
from checkrein.models.base import Model, tokens_of
from checkrein.models.failures import Retries
from checkrein.models.history import INTERRUPTED_REPLY, repair
from checkrein.models.messages import Message, Request, Settings, User
from checkrein.watchers.base import SeveralWatchers, Watching, watch

REMEMBERED_ANSWERS = 5
"""How many of the latest answers a watcher is told of."""


class Watch:
    """The watchers of a program, over all that it asks models in one run."""

    def __init__(self, watchers: Sequence[Watching]) -> None:
        self._specifications = watchers
        self._answers: list[str] = []

    def begin(self, instructions: str = "") -> SeveralWatchers | None:
        return watch(self._specifications, instructions, self._answers) if self._specifications else None

    def heard(self, answer: str) -> None:
        self._answers = [*self._answers, answer][-REMEMBERED_ANSWERS:] if self._specifications else []


# -- a model of ours


def question(
    driver: ProgramApi,
    model: Model,
    messages: Sequence[Message],
    *,
    instructions: str,
    output_schema: Json | None,
    settings: Settings,
    place: str,
    step: int | None,
    priced: bool,
    retries: Retries,
    watch: Watch,
) -> CallRequest:
    """It is asked again by itself where that may help, and carries what a person has told the program meanwhile."""

    def perform(permit: Permit) -> Execution:
        told = messages if permit.instruction is None else repair([*messages, User(permit.instruction)])
        return ModelExecution(
            model,
            Request(instructions, tuple(told), output_schema=output_schema, settings=settings),
            driver.shows(permit),
            secrets=driver.secrets,
            watchers=watch.begin(instructions),
            on_flag=lambda flag, withheld: driver.flag(permit.call, flag, withheld, permit.attempt),
            retries=retries,
            most_tokens=tokens_allowed(driver),
        )

    return CallRequest(
        kind=CallKind.MODEL,
        name=model.name,
        priced=priced,
        perform=perform,
        arguments=msgspec.json.encode({"instructions": instructions, "messages": messages}),
        place=place,
        step=step,
        carries=True,
    )


# -- a model that somebody else asks


class Answer(msgspec.Struct, frozen=True):
    """What came of a request that somebody else has made."""

    value: Any
    """That of its `WholeAnswer`, as JSON holds it."""
    instruction: str | None = None
    """What a person had told the agent, and went with it."""
    messages: tuple[SaidMessage, ...] = ()
    """What was sent after the program's own messages: halves of answers, and instructions. They belong into its
    history, before the answer."""


class Answering:
    """One answer, until there is one: interrupted, it is asked for again with what was said; failed, once mended."""

    def __init__(
        self,
        driver: ProgramApi,
        source: Source,
        *,
        name: str,
        place: str,
        asked: object,
        step: int | None,
        watch: Watch,
        carries: bool,
    ) -> None:
        self._driver = driver
        self._source = source
        self._name = name
        self._place = place
        self._recorded, self._tokens = _recorded(asked)
        self._step = step
        self._watch = watch
        self._carries = carries
        self._said: list[SaidMessage] = []
        self._retries = Retries()

    async def answer(self) -> Answer:
        while True:
            try:
                result = await self._driver.call(await self._call())
            except Interrupted as interrupted:
                self._interrupted(interrupted)
            except CallFailed as failed:
                await mend(self._driver, failed)
                self._retries = Retries()
                if failed.instruction is not None:
                    self._said.append(user(failed.instruction))
            else:
                return self._answered(result)

    async def _call(self) -> CallRequest:
        asked = SourceModel(self._name, self._source, Asked())
        return CallRequest(
            kind=CallKind.MODEL,
            name=self._name,
            priced=await is_priced(self._driver, asked),
            perform=self._perform,
            arguments=self._recorded,
            place=self._place,
            step=self._step,
            carries=self._carries,
        )

    def _perform(self, permit: Permit) -> Execution:
        driver, asked = self._driver, asked_for(permit, self._said)
        model = SourceModel(self._name, self._source, asked)
        reading = ModelExecution(
            model,
            Request("", (), unseen_tokens=self._tokens),
            driver.shows(permit),
            secrets=driver.secrets,
            watchers=self._watch.begin(),
            on_flag=lambda flag, withheld: driver.flag(permit.call, flag, withheld, permit.attempt),
            retries=self._retries,
            most_tokens=tokens_allowed(driver),
        )
        return AnswerExecution(model, asked, reading, driver.secrets)

    def _interrupted(self, interrupted: Interrupted) -> None:
        """What was said until then is said to the model: first what had gone with the request, then half its answer."""
        if interrupted.carried is not None:
            self._said.append(user(interrupted.carried))
        half = said_in(interrupted.partial).rstrip()
        if half:
            self._said.append(assistant(half))
            if interrupted.instruction is None and self._driver.state.instruction is None:
                self._said.append(user(INTERRUPTED_REPLY))

    def _answered(self, result: Result) -> Answer:
        assert result.value is not None, "an answer that completed is recorded"
        recorded = msgspec.json.decode(result.value, type=RecordedAnswer)
        self._watch.heard(recorded.message.text)
        told = [one["content"] for one in recorded.messages if one["role"] == "user"]
        return Answer(recorded.whole_value(), "\n\n".join(told) or None, recorded.messages)


def _recorded(asked: object) -> tuple[bytes, int]:
    """What is recorded of a request, and about how many tokens there are to read in it."""
    plain = asked if isinstance(asked, dict) else {} if asked is None else {"asked": asked}
    encoded = values.encode_result(_recorded, plain)
    tokens = plain.get("tokens")
    if isinstance(tokens, int):
        return encoded, tokens
    tokens = tokens_of(len(encoded))
    return values.encode_result(_recorded, {**plain, "tokens": tokens}), tokens


# -- a person


def told(name: str, place: str, arguments: object = None, *, step: int | None = None) -> CallRequest:
    """The call with which a program takes what a person has said. It touches nothing."""
    return CallRequest(
        kind=CallKind.TOOL,
        name=name,
        perform=lambda permit: KnownExecution(msgspec.json.encode(permit.instruction)),
        arguments=msgspec.json.encode(arguments),
        place=place,
        step=step,
        carries=True,
        idempotent=True,
    )
