"""Everything public about the provider is in the reference."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from checkrein.testing import provider
from checkrein.testing.provider import Fault, Provider, ProviderProcess, Reply, Request, Usage
from checkrein.testing.provider.log import How

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text()


@pytest.mark.parametrize("name", provider.__all__)
def test_every_public_name_is_in_the_reference_and_says_what_it_is(name: str):
    assert f"`{name}" in PAGE
    assert (getattr(provider, name).__doc__ or "").strip()


@pytest.mark.parametrize("kind", [Reply, Fault, Request, Usage])
def test_every_field_is_in_the_reference(kind: type):
    hidden = {"raw", "wall_offset"}

    missing = [field.name for field in fields(kind) if field.name not in PAGE and field.name not in hidden]

    assert missing == []


@pytest.mark.parametrize("kind", [Provider, ProviderProcess, Request])
def test_every_attribute_is_in_the_reference(kind: type):
    names = [name for name in vars(kind) if not name.startswith("_") and name not in ("raw", "wall_offset")]

    assert [name for name in names if name not in PAGE] == []


def test_every_way_to_end_is_in_the_reference():
    assert [how for how in get_args(How) if f'`"{how}"`' not in PAGE] == []
