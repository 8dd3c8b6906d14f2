"""Who may see and do what. The rules themselves; that every route asks them is shown in test_matrix.py."""

from __future__ import annotations

import pytest

from checkrein.server.auth.principals import Action, Principal, Role

VIEWER, CONTROLLER, OPERATOR = (Principal(name="ann", role=role, owner="ann") for role in Role)


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {Action.SEE}),
        (Role.CONTROLLER, {Action.SEE, Action.START, Action.STEER}),
        (Role.OPERATOR, {Action.SEE, Action.START, Action.STEER, Action.OPERATE}),
    ],
)
def test_each_role_may_what_the_one_before_it_may_and_more(role: Role, may: set[Action]) -> None:
    assert {action for action in Action if Principal(name="ann", role=role).may(action)} == may


@pytest.mark.parametrize("role", Role)
def test_a_token_for_one_run_starts_nothing_and_halts_nothing(role: Role) -> None:
    principal = Principal(name="bar", role=role, run="r-1")

    assert not principal.may(Action.START)
    assert not principal.may(Action.OPERATE)
    assert principal.may(Action.SEE)
    assert principal.may(Action.STEER) == (role is not Role.VIEWER)


def test_only_an_operator_sees_the_runs_of_others() -> None:
    assert OPERATOR.may_see("bob", "r-1", None)
    for principal in (VIEWER, CONTROLLER):
        assert principal.may_see("ann", "r-1", None)
        assert not principal.may_see("bob", "r-1", None)
        assert not principal.may_see("", "r-1", None)
        assert not principal.may_see("Ann", "r-1", None)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.CONTROLLER])
def test_somebody_without_an_owner_sees_no_run_not_even_one_without(role: Role) -> None:
    nobody = Principal(name="nobody", role=role)

    assert not nobody.may_see("", "r-1", None)
    assert not nobody.may_see("ann", "r-1", None)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("owner", ["", "ann"])
def test_a_token_for_one_run_sees_that_run_and_what_it_started(role: Role, owner: str) -> None:
    bar = Principal(name="bar", role=role, owner=owner, run="r-1")

    assert bar.may_see("ann", "r-1", None)
    assert bar.may_see("ann", "r-2", "r-1")
    assert bar.may_see("ann", "r-1.c2.c1", "r-0"), "below it, under another root"
    assert not bar.may_see("ann", "r-11.c2", "r-0")
    assert not bar.may_see("ann", "r-2", None)
    assert not bar.may_see("ann", "r-3", "r-2")
    if owner and role is not Role.OPERATOR:
        assert not bar.may_see("bob", "r-1", None)
