"""`Control`, `Run` and `Halting` are written out for people: they take what the table of verbs says, nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from inspect import Parameter as P
from typing import Any, get_type_hints

import pytest

from checkrein import Run
from checkrein.control.control import Control
from checkrein.control.halt import Halting
from checkrein.core.enums import Answer, Undo, When
from checkrein.core.verb_specs import BY, EXPECTED_SEQ, REQUEST_ID, REQUIRED, SPECS, ExpectedSeq, VerbSpec
from checkrein.journal.base import Scope

Signature = dict[str, tuple[Any, Any, Any]]
"""By name: the kind, the type and the default."""

on_runs = pytest.mark.parametrize(
    "spec", [one for one in SPECS.values() if one.target != "scope"], ids=lambda s: s.name
)
on_scopes = pytest.mark.parametrize(
    "spec", [one for one in SPECS.values() if one.target == "scope"], ids=lambda s: s.name
)


def written(method: Callable[..., Any]) -> Signature:
    hints = get_type_hints(method)
    parameters = [one for one in inspect.signature(method).parameters.values() if one.name != "self"]
    return {
        one.name: (one.kind, hints[one.name], REQUIRED if one.default is P.empty else one.default) for one in parameters
    }


def describe(spec: VerbSpec, *, wait: float | None, by: Any) -> Iterator[tuple[str, tuple[Any, Any, Any]]]:
    if spec.target == "call":
        yield spec.call_name, (P.POSITIONAL_OR_KEYWORD, str, REQUIRED)
    for one in spec.parameters:
        yield one.name, (P.POSITIONAL_OR_KEYWORD if one.by_position else P.KEYWORD_ONLY, one.type, one.default)
    yield BY.name, (P.KEYWORD_ONLY, BY.type, by)
    if spec.has_request_id:
        yield REQUEST_ID.name, (P.KEYWORD_ONLY, REQUEST_ID.type, REQUEST_ID.default)
    if spec.expected_seq is ExpectedSeq.CHECKED:
        yield EXPECTED_SEQ.name, (P.KEYWORD_ONLY, EXPECTED_SEQ.type, EXPECTED_SEQ.default)
    if wait is not None:
        yield "wait", (P.KEYWORD_ONLY, float, wait)


@on_runs
def test_control_takes_what_the_table_says(spec: VerbSpec) -> None:
    wait = None if spec.wait is None else spec.wait.control

    expected = {"run": (P.POSITIONAL_OR_KEYWORD, str, REQUIRED), **dict(describe(spec, wait=wait, by=REQUIRED))}

    assert written(getattr(Control, spec.name)) == expected


@on_runs
def test_a_handle_on_a_run_takes_what_the_table_says_and_words_for_what_is_from_a_closed_list(spec: VerbSpec) -> None:
    wait = None if spec.wait is None else spec.wait.program

    expected = dict(describe(spec, wait=wait, by="program"))

    for name, (kind, taken, default) in expected.items():
        if taken in (When, Undo, Answer):
            expected[name] = (kind, taken | str, default)
    assert written(getattr(Run, spec.name)) == expected


@on_scopes
def test_halt_and_reset_take_what_the_table_says(spec: VerbSpec) -> None:
    wait = None if spec.wait is None else spec.wait.control

    expected = dict(describe(spec, wait=wait, by=REQUIRED))

    kind, _, default = expected["scope"]
    expected["scope"] = (kind, Scope | str, default)
    assert written(getattr(Halting, spec.name)) == expected


def test_no_verb_is_left_out_of_the_table() -> None:
    def verbs(owner: type) -> set[str]:
        public = {name: one for name, one in vars(owner).items() if not name.startswith("_") and callable(one)}
        return {name for name, one in public.items() if "by" in inspect.signature(one).parameters}

    on_run = {spec.name for spec in SPECS.values() if spec.target != "scope"}
    on_scope = {spec.name for spec in SPECS.values() if spec.target == "scope"}

    assert verbs(Control) == on_run
    assert (
        verbs(Run) - {"fork"} == on_run
    )  # a fork begins another run, as `Runtime.start` does; it asks nothing of this one
    assert verbs(Halting) == on_scope
