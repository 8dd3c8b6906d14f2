from __future__ import annotations

import subprocess
import sys

import pytest

from checkrein.core.enums import Undo, Verb
from checkrein.core.verb_specs import CANCEL, PAUSE, REDIRECT, RESOLVE, RESUME, SPECS, ExpectedSeq, Parameter, VerbSpec

each_verb = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def test_every_verb_that_a_journal_can_record_is_described() -> None:
    assert set(Verb) <= set(SPECS)


@each_verb
def test_the_example_of_a_verb_gives_what_it_needs_and_nothing_that_it_does_not_take(spec: VerbSpec) -> None:
    taken = {one.body_name or one.name for one in spec.parameters} | ({"wait"} if spec.wait else set())
    needed = {one.body_name or one.name for one in spec.parameters if one.is_required}

    assert needed <= set(spec.example) <= taken
    assert spec.takes_something == bool(needed)


@each_verb
def test_a_verb_is_told_in_sentences_and_its_parameters_too(spec: VerbSpec) -> None:
    assert spec.summary
    assert not spec.summary.endswith(".")
    assert all(told.endswith(".") for told in (spec.help, *(one.help for one in spec.parameters)))


def test_the_words_of_a_closed_list_are_the_choices_of_a_parameter() -> None:
    assert _parameter(CANCEL, "undo").choices == tuple(Undo)
    assert _parameter(SPECS["halt"], "scope").choices == ("run", "agent", "owner", "all")
    assert _parameter(PAUSE, "reason").choices == ()


def test_what_may_be_left_out_says_so() -> None:
    assert _parameter(RESUME, "instruction").is_optional
    assert not _parameter(RESUME, "instruction").is_required
    assert _parameter(REDIRECT, "instruction").is_required
    assert not _parameter(RESOLVE, "answer").is_optional


def test_a_stop_is_never_refused_as_stale() -> None:
    assert {spec.expected_seq for spec in (PAUSE, CANCEL)} == {ExpectedSeq.IGNORED}


def test_a_command_line_can_read_the_table_without_a_library() -> None:
    code = "import sys, checkrein.core.verb_specs; print(*{'msgspec', 'anyio', 'fastapi'} & set(sys.modules))"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.strip() == ""


def _parameter(spec: VerbSpec, name: str) -> Parameter:
    return next(one for one in spec.parameters if one.name == name)
