"""The verbs on a run and on a single call, declared as `core.verb_specs` describes them.

Beside the description stands only what a terminal adds: a run may be left out, and a call is looked for among those
that the verb is for.

A verb is asked for, what it waits for is said, and its receipt is printed. Decisions about single calls are in force
when they are taken, and have no receipt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from checkrein.cli import options, output
from checkrein.cli.completion import complete_words
from checkrein.cli.lookup import LAST, Beside, calls_called, find_call, find_run, may_be_text, read_words
from checkrein.cli.session import Session, with_session
from checkrein.cli.wording import approval_lines, receipt_lines, settling_lines
from checkrein.core import verb_specs
from checkrein.core.enums import Answer, Decision, Status, Verb
from checkrein.core.escape import one_line
from checkrein.core.verb_specs import Parameter, VerbSpec
from checkrein.core.wording import ANSWERED, ENDED
from checkrein.errors import Refused, WrongInput

if TYPE_CHECKING:
    from checkrein.control.control import Settling
    from checkrein.control.view import ApprovalView
    from checkrein.core.receipts import Receipt

PATIENCE_SECONDS: Final = 1.0
"""After so long a person is told what a verb waits for."""
_STOPS: Final = frozenset({"pause", "cancel", "abort"})
"""After the end there is nothing left for these to stop, which is what they are told."""


async def ask_for(session: Session, spec: VerbSpec, run: str, *, as_json: bool, **given: Any) -> None:
    """Ask for a verb and print what comes of it. Raises what the verb raises, with nothing changed."""
    told = asyncio.get_running_loop().create_task(_tell_what_it_waits_for(session, run))
    try:
        answer = await take(session, spec, run, **given)
    finally:
        told.cancel()
        await asyncio.gather(told, return_exceptions=True)
    assert answer is not None
    if as_json:
        output.out_json(answer)
        return
    for line in await _lines(session, run, answer):
        output.out(line)


async def take(session: Session, spec: VerbSpec, run: str, **given: Any) -> Receipt | Settling | None:
    """Have a verb taken. One that comes after the end of the run is told how to go on from there."""
    try:
        return await session.take(spec, run, **given)
    except Refused as refused:
        if refused.code != "finished" or spec.name in _STOPS:
            raise
        ended = ENDED.get(Status(refused.status), refused.status) if refused.status else "is over"
        go_on = await session.go_on_from(run)
        raise Refused(
            f"Run {run} {ended}: there is nothing left to {spec.name}. To go on from it: {go_on}",
            code=refused.code,
            run=run,
            status=refused.status,
        ) from None


async def _lines(session: Session, run: str, answer: Receipt | Settling) -> list[str]:
    from checkrein.control.control import Settling

    if unattended := await session.unattended(run):
        return list(unattended)
    if isinstance(answer, Settling):
        return settling_lines(answer)
    if answer.verb is Verb.ASK and answer.answer is None:
        return [f"The question got no answer: {one_line(await session.why_unanswered(answer), 400)}."]
    return receipt_lines(answer)


async def _tell_what_it_waits_for(session: Session, run: str) -> None:
    """In a terminal, after a while: what the verb waits for, whenever that changes."""
    if not sys.stderr.isatty():
        return
    told = ""
    while True:
        await asyncio.sleep(PATIENCE_SECONDS)
        waits_for = await session.waits_for(run)
        if waits_for != told:
            output.note(f"… waiting for {waits_for}")
            told = waits_for


async def say_decided(
    session: Session, run: str, call: str, lines: list[str], fields: dict[str, Any], *, as_json: bool
) -> None:
    """A decision about a call is taken: say so, and whether anybody is there to act on it."""
    if as_json:
        output.out_json({"run": run, "call": call, **fields})
        return
    for line in lines:
        output.out(line)
    if unattended := await session.unattended(run):
        output.out(f"No process is there to act on it. {unattended[-1]}")


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


# -- declaring


def _declared(spec: VerbSpec) -> click.Command:
    on = _on_run if spec.target == "run" else _on_call

    def carry_out(place: options.Place, **given: Any) -> None:
        with_session(place, lambda session: on(session, spec, **given))

    declared: Callable[..., None] = carry_out
    for decorate in reversed(list(_parameters(spec))):
        declared = decorate(declared)
    return click.command(spec.name.replace("_", "-"), help=spec.help)(declared)


def _parameters(spec: VerbSpec) -> Iterator[Decorator]:
    """The arguments, then the options: those of the verb first."""
    yield _words(spec)
    yield from (_option(one) for one in spec.parameters if not one.by_position and one.name != _FINGERPRINT)
    yield options.by
    if spec.wait is not None:
        yield click.option(
            "--wait",
            metavar="SECONDS",
            type=options.Number(min=0, max=options.LONGEST_WAIT),
            default=spec.wait.terminal,
            show_default=True,
            help=verb_specs.WAIT.help,
        )
    yield options.as_json
    yield options.place


def _words(spec: VerbSpec) -> Decorator:
    """The run may be left out, and the call; what must be said comes last."""
    metavar, helps = ["[RUN]"], [options.RUN_HELP]
    if spec.target == "call":
        metavar.append("[CALL]")
        helps.append(options.CALL_HELP)
    for one in (one for one in spec.parameters if one.by_position):
        metavar.append(one.name.upper() if one.is_required else f"[{one.name.upper()}]")
        helps.append(one.help)
    return click.argument(
        "words",
        metavar=" ".join(metavar),
        nargs=-1,
        required=any(one.by_position and one.is_required for one in spec.parameters),
        shell_complete=complete_words,
        help=" ".join(helps),
    )


def _option(parameter: Parameter) -> Decorator:
    name = f"--{parameter.name.replace('_', '-')}"
    if parameter.choices:
        return click.option(
            name,
            type=click.Choice([str(one) for one in parameter.choices]),
            default=str(parameter.default),
            show_default=True,
            callback=lambda ctx, param, value: parameter.type(value),
            help=parameter.help,
        )
    if parameter.type is bool:
        return click.option(name, is_flag=True, default=False, help=parameter.help)
    if parameter.type not in (str, str | None):
        return click.option(
            name,
            metavar="JSON",
            callback=lambda ctx, param, value: _decoded(parameter, name, value),
            help=parameter.help,
        )
    return click.option(name, metavar="TEXT", default=parameter.default, help=parameter.help)


def _decoded(parameter: Parameter, name: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WrongInput(
            f"{name} is not JSON: {error}. A text needs quotes of its own, as in '\"sent\"'.", code="not_json"
        ) from None
    if parameter.type is not Any and not isinstance(value, dict):
        raise WrongInput(f'{name} takes an object, as in \'{{"to": "ann"}}\'.', code="not_json")
    return value


# -- a verb on a run


async def _on_run(session: Session, spec: VerbSpec, *, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    text = next((one for one in spec.parameters if one.by_position), None)
    beside = None if text is None else Beside(f"the {text.name}", text.is_required, may_be_text)
    read = await read_words(session, words, beside)
    if text is not None:
        given[text.name] = read.beside
    run = read.run or await find_run(session, None)
    await ask_for(session, spec, run, as_json=as_json, **given)


# -- a verb on a single call

_FINGERPRINT: Final = "fingerprint"
"""Of what a person was shown: sent with an approval, never typed."""


class _Calls(NamedTuple):
    """What a verb on a call is for, and what is said once it is taken."""

    what: str
    said: str = ""
    """With the name of the call in it."""
    fields: Mapping[str, Any] = MappingProxyType({})
    """Of a JSON object."""
    chooses_run: bool = False
    """Whether a run that has such a call is meant, where none is named and several are unfinished."""
    default_run: str | None = None


_CALLS: Final = {
    "abort": _Calls("is in flight"),
    "approve": _Calls("waits for an approval", "Approved {}", {"decision": Decision.APPROVED}, chooses_run=True),
    "deny": _Calls("waits for an approval", "Denied {}", {"decision": Decision.DENIED}, chooses_run=True),
    "resolve": _Calls("is in doubt", "Written down: {}", chooses_run=True),
    "retry_undo": _Calls(
        "was left and could be undone", "The undo of {} is tried again", {"effect": "reopened"}, default_run=LAST
    ),
}


async def _on_call(session: Session, spec: VerbSpec, *, words: tuple[str, ...], as_json: bool, **given: Any) -> None:
    calls = _CALLS[spec.name]
    fields: dict[str, Any] = dict(calls.fields)
    said = calls.said
    if spec is verb_specs.RESOLVE:
        *words_before, answer = words
        words, given["answer"] = tuple(words_before), _answer(answer)
        said, fields = f"{said} {ANSWERED[given['answer']]}", {"answer": given["answer"]}
    run, name = await _run_and_call(session, spec, words)
    waiting = await session.calls_for(spec.name, run)
    call = given[spec.call_name] = find_call(run, name, waiting, what=calls.what)
    if spec.wait is not None:
        await ask_for(session, spec, run, as_json=as_json, **given)
        return
    shown: list[str] = []
    if calls.fields.get("decision"):
        shown = await _shown(session, spec, run, call, name, given)
    await take(session, spec, run, **given)
    lines = [f"{one_line(said.format(waiting[call]))} (call {call} of run {run}).", *shown]
    await say_decided(session, run, call, lines, fields, as_json=as_json)


async def _run_and_call(session: Session, spec: VerbSpec, words: tuple[str, ...]) -> tuple[str, str | None]:
    """The run, and what was said of the call. A call that is named chooses the run that has it."""
    calls = _CALLS[spec.name]

    async def is_call(word: str) -> bool:
        rows = await session.rows(unfinished=True)
        return any([calls_called(word, await session.calls_for(spec.name, row.id)) for row in rows])

    run, name = await read_words(session, words, Beside("the call", False, is_call))

    async def has_one(run: str) -> bool:
        return bool(calls_called(name, await session.calls_for(spec.name, run)))

    wants = has_one if calls.chooses_run or name is not None else None
    return run or await find_run(session, calls.default_run, wants=wants), name


async def _shown(
    session: Session, spec: VerbSpec, run: str, call: str, name: str | None, given: dict[str, Any]
) -> list[str]:
    """What is approved or denied, as lines. Without a terminal, whoever approves must know which call that is."""
    approval = await session.approval(run, call)
    if spec is verb_specs.APPROVE and name is None and not output.is_terminal():
        raise WrongInput(
            f"Nobody sits at a terminal, so say which call is approved: {call} "
            f"({one_line('' if approval is None else approval.name, 80)}) of run {run}.",
            code="call_not_named",
            run=run,
        )
    if approval is None:
        return []
    if any(one.name == _FINGERPRINT for one in spec.parameters):
        given[_FINGERPRINT] = _field(approval, _FINGERPRINT)
    always = [f"  So is every later call of {one_line(approval.name, 80)} in this run."] if given.get("always") else []
    return [*approval_lines(approval, given.get("arguments")), *always]


def _field(approval: ApprovalView, name: str) -> Any:
    return msgspec.structs.asdict(approval).get(name)


def _answer(said: str) -> Answer:
    try:
        return Answer(said.replace("-", "_"))
    except ValueError:
        raise WrongInput(
            f"{one_line(said, 40)!r} is no answer; say happened, did_not_happen or undo.", code="unknown_answer"
        ) from None


# -- the commands

pause = _declared(verb_specs.PAUSE)
resume = _declared(verb_specs.RESUME)
redirect = _declared(verb_specs.REDIRECT)
cancel = _declared(verb_specs.CANCEL)
ask = _declared(verb_specs.ASK)
approve = _declared(verb_specs.APPROVE)
deny = _declared(verb_specs.DENY)
resolve = _declared(verb_specs.RESOLVE)
abort = _declared(verb_specs.ABORT)
retry_undo = _declared(verb_specs.RETRY_UNDO)
