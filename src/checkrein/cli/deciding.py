"""Decisions about single calls: they are in force when they are taken, and have no receipt."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from checkrein.cli import hints, saying
from checkrein.cli.asking import is_taken_up
from checkrein.cli.clean import one_line
from checkrein.cli.naming import find_call, find_run
from checkrein.cli.session import Session, with_store
from checkrein.core.words import Answer, Decision, EffectState
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.core.state import State


def decide(
    decision: Decision, store: str, run: str | None, call: str | None, *, note: str, by: str, as_json: bool
) -> None:
    """Approve or deny a call that waits for consent."""

    async def act(session: Session) -> None:
        async def waits(name: str) -> bool:
            return bool(_undecided(await session.journal.load(name)))

        name = await find_run(session, run, wants=waits)
        waiting = _undecided(await session.journal.load(name))
        chosen = find_call(name, call, waiting, what="waits for an approval")
        verb = session.control.approve if decision is Decision.APPROVED else session.control.deny
        await verb(name, chosen, by=by, note=note)
        word = "Approved" if decision is Decision.APPROVED else "Denied"
        await _say(session, name, chosen, f"{word} {waiting[chosen]}", {"decision": decision}, as_json=as_json)

    with_store(store, act)


def _undecided(state: State) -> dict[str, str]:
    return {call: approval.name for call, approval in state.approvals.items() if approval.decision is None}


def answer(store: str, words: list[str], *, result: str | None, note: str, by: str, as_json: bool) -> None:
    """Say what became of a call in doubt."""
    *named, said = words
    word = _answer(said)
    value = _value(result)
    if len(named) > 2:
        raise WrongInput("Too many words: [RUN] [CALL] ANSWER is what resolve takes.", code="usage")

    async def act(session: Session) -> None:
        async def waits(name: str) -> bool:
            return bool(await _in_doubt(session, name))

        name = await find_run(session, named[0] if named else None, wants=waits)
        if not (await session.journal.load(name)).is_finished and not await session.is_driven(name):
            await session.control.settle_undriven(name)  # what its process died over is in doubt from here on
        waiting = await _in_doubt(session, name)
        chosen = find_call(name, named[1] if len(named) > 1 else None, waiting, what="is in doubt")
        await session.control.resolve(name, chosen, word, by=by, result=value, note=note)
        sentence = f"Written down: {waiting[chosen]} {_SAID[word]}"
        await _say(session, name, chosen, sentence, {"answer": word}, as_json=as_json)

    with_store(store, act)


_SAID = {Answer.HAPPENED: "happened", Answer.DID_NOT_HAPPEN: "did not happen", Answer.UNDO: "is to be undone"}


def _answer(said: str) -> Answer:
    try:
        return Answer(said.replace("-", "_"))
    except ValueError:
        raise WrongInput(
            f"{one_line(said, 40)!r} is no answer; say happened, did_not_happen or undo.", code="unknown_answer"
        ) from None


def _value(result: str | None) -> Any:
    if result is None:
        return None
    try:
        return json.loads(result)
    except ValueError as error:
        raise WrongInput(
            f"--result is not JSON: {error}. A text needs quotes of its own, as in '\"sent\"'.", code="not_json"
        ) from None


async def _in_doubt(session: Session, run: str) -> dict[str, str]:
    """What a person may resolve: calls that the run waits for, and what a stop has left unknown."""
    from checkrein.control.viewing import look

    return {doubt.call: doubt.name for doubt in (await look(session.journal, run, at=0.0)).doubts}


def try_undo_again(store: str, run: str | None, call: str | None, *, by: str, as_json: bool) -> None:
    """Have an undo tried again that had to be left."""

    async def act(session: Session) -> None:
        name = await find_run(session, run or "last")
        left = await session.journal.effects(name, {EffectState.LEFT})
        waiting = {effect.id: effect.what for effect in left if effect.undo is not None}
        chosen = find_call(name, call, waiting, what="was left and could be undone")
        await session.control.retry_undo(name, chosen, by=by)
        sentence = f"The undo of {waiting[chosen]} is tried again"
        await _say(session, name, chosen, sentence, {"effect": "reopened"}, as_json=as_json)

    with_store(store, act)


async def _say(session: Session, run: str, call: str, sentence: str, fields: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        saying.out_json({"run": run, "call": call, **fields})
        return
    saying.out(f"{one_line(sentence)} (call {call} of run {run}).")
    if not await is_taken_up(session, run):
        agent = (await session.journal.load(run)).agent
        saying.out(f"No process with agent {agent} is running. Take it up with: {hints.take_up(run)}")
