"""Clients of vendors take seconds to import, and every process of `make test` reads every file of tests.

if TYPE_CHECKING:
    import anthropic as sdk
else:
    sdk = lazy_module("anthropic")
"""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def lazy_module(name: str) -> ModuleType:
    """A module that is imported when something of it is asked for."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    assert spec is not None, f"{name} is not installed"
    assert spec.loader is not None, f"{name} has no code"
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
