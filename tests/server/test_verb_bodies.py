"""What a verb takes over HTTP is what `Control` takes, as the table of verbs says."""

from __future__ import annotations

import inspect
from typing import get_args

import msgspec
import pytest

from checkrein.control.control import Control
from checkrein.control.halt import Halting
from checkrein.core.verb_specs import SPECS, ExpectedSeq, MayAsk, VerbSpec
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.routes.verbs import ACTIONS
from checkrein.server.schemas import VERB_BODIES, arguments

each_verb = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())


def body_of(spec: VerbSpec, **fields: object) -> msgspec.Struct:
    return msgspec.convert({**spec.example, **fields}, VERB_BODIES[spec.name])


@each_verb
def test_the_example_of_a_body_is_what_the_verb_itself_can_be_called_with(spec: VerbSpec) -> None:
    verb = getattr(Halting if spec.target == "scope" else Control, spec.name)
    target = {"run": ("r-1",), "call": ("r-1", "c1"), "scope": ()}[spec.target]

    inspect.signature(verb).bind(None, *target, by="ann", **arguments(spec, body_of(spec)))


@each_verb
def test_a_field_that_nobody_knows_is_refused(spec: VerbSpec) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `undoo`"):
        body_of(spec, undoo="all")


@each_verb
def test_a_request_id_is_handed_on_and_one_that_is_left_out_is_none(spec: VerbSpec) -> None:
    if not spec.has_request_id:
        assert "request_id" not in arguments(spec, body_of(spec))
        return

    assert arguments(spec, body_of(spec))["request_id"] == ""
    assert arguments(spec, body_of(spec, request_id="click-00000001"))["request_id"] == "click-00000001"


@each_verb
def test_an_expected_seq_reaches_only_what_may_be_stale(spec: VerbSpec) -> None:
    if spec.expected_seq is ExpectedSeq.ABSENT:
        with pytest.raises(msgspec.ValidationError, match="unknown field"):
            body_of(spec, expected_seq=7)
        return

    given = arguments(spec, body_of(spec, expected_seq=7))

    assert given.get("expected_seq") == (7 if spec.expected_seq is ExpectedSeq.CHECKED else None)


@each_verb
def test_the_least_role_may_and_the_one_below_it_may_not(spec: VerbSpec) -> None:
    roles = list(Role)
    least = roles.index(Role(spec.role))

    may = [Principal(name="p", role=role).may(ACTIONS[spec.role]) for role in roles]

    assert get_args(MayAsk) == tuple(roles)
    assert may == [place >= least for place in range(len(roles))]
