"""Every attribute of an error is declared with its type, and nobody raises one with another."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import checkrein
from checkrein import errors
from checkrein.errors import CheckreinError, LeaseHeld, ModelError, ModelRateLimited, Refused, StoreUnavailable

SOURCE = Path(checkrein.__file__).parent
KINDS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, CheckreinError)
}


def declared(kind: type[CheckreinError]) -> set[str]:
    return {name for one in kind.__mro__ for name in vars(one).get("__annotations__", {})}


def made() -> Iterator[tuple[str, str, str]]:
    """Where an error is made with an attribute: the place, the kind and the attribute."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in KINDS:
                for keyword in node.keywords:
                    if keyword.arg is not None:
                        yield f"{path.relative_to(SOURCE)}:{node.lineno}", name, keyword.arg


def test_every_error_is_made_with_attributes_that_it_declares() -> None:
    found = list(made())

    assert len(found) > 50
    assert [one for one in found if one[2] not in declared(KINDS[one[1]])] == []


def test_an_attribute_that_is_not_declared_is_a_mistake_of_whoever_raises_the_error() -> None:
    with pytest.raises(TypeError, match="Refused has no attribute stauts"):
        Refused("No.", stauts="paused")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_every_attribute_can_be_read_of_an_error_that_was_made_without_it(kind: type[CheckreinError]) -> None:
    error = kind("A sentence.")

    assert {name: getattr(error, name) for name in declared(kind)}["message"] == "A sentence."
    assert error.code == kind.code


def test_a_code_of_its_own_is_that_of_one_error_and_of_no_other() -> None:
    assert Refused("No.", code="stale").code == "stale"
    assert Refused("No.").code == "refused"


def test_what_a_provider_asked_to_wait_can_be_read_of_every_error_of_a_model() -> None:
    errors: list[ModelError] = [ModelError("?"), ModelRateLimited("Too often.", retry_after=2.5)]

    assert [error.retry_after for error in errors] == [None, 2.5]


@pytest.mark.parametrize("error", [LeaseHeld("Held.", run="r-1", deadline=7.0), StoreUnavailable("Locked.", pid=12)])
def test_an_error_keeps_its_attributes_on_the_way_to_another_process(error: Any) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), vars(copy)) == (type(error), vars(error))
