"""How a worker imports a tool, and why nothing that it imports may start a runtime. The other half of `importable`.

Imports little: every worker starts with it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import reduce
from types import ModuleType
from typing import Any, Final, NamedTuple

from checkrein.errors import MisuseError, NotImportable

SCRIPT: Final = "__mp_main__"
"""The name a script is imported under: the one multiprocessing uses, so that a tool may use multiprocessing itself."""


class Target(NamedTuple):
    """Where a worker finds a function. `path` is that of the script, for one defined in `__main__`."""

    module: str
    qualname: str
    path: str = ""


class _Worker:
    """What this process knows about being a worker."""

    is_one = False
    importing: str | None = None
    refused: Final[dict[str, NotImportable]] = {}
    """Modules and scripts that tried to start a runtime. They stay refused, whatever they made of it."""
    scripts: Final[dict[str, ModuleType]] = {}


def enter_worker() -> None:
    """From now on this process is a worker, in which no runtime may be started."""
    _Worker.is_one = True


def in_worker() -> bool:
    """Whether this process is a worker."""
    return _Worker.is_one


def refuse_in_worker() -> None:
    """Raise if this process is a worker. Whatever starts a runtime calls this first: a script that starts one whenever
    it is imported would otherwise start workers that start workers."""
    if not _Worker.is_one:
        return
    if _Worker.importing is None:
        raise MisuseError("A tool that runs in a worker process cannot start a runtime of its own.")
    refusal = NotImportable(
        f"Importing {_Worker.importing} in a worker process starts a runtime again. Put what starts the program under "
        '`if __name__ == "__main__":`.',
        function=_Worker.importing,
        reason="importing it starts a runtime",
    )
    _Worker.refused[_Worker.importing] = refusal
    raise refusal


def load(target: Target) -> Callable[..., Any]:
    """Import the function. Raises whatever its module raises, or `NotImportable` if that tried to start a runtime."""
    name = target.path or target.module
    _Worker.importing = name
    try:
        module = _load_script(target.path) if target.path else importlib.import_module(target.module)
    finally:
        _Worker.importing = None
        if name in _Worker.refused:
            raise _Worker.refused[name] from None
    found = look_up(module, target.qualname)
    if not callable(found):
        raise TypeError(f"{target.qualname} in {name} is not a function")
    return found  # type: ignore[no-any-return]


def look_up(module: ModuleType, qualname: str) -> Any:
    return reduce(getattr, qualname.split("."), module)


def _load_script(path: str) -> ModuleType:
    if path in _Worker.scripts:
        return _Worker.scripts[path]
    from importlib.machinery import SourceFileLoader

    module = ModuleType(SCRIPT)
    module.__file__ = path
    code = SourceFileLoader(SCRIPT, path).get_code(SCRIPT)
    assert code is not None
    main = sys.modules["__main__"]
    sys.modules[SCRIPT] = sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[SCRIPT]
        sys.modules["__main__"] = main
        raise
    _Worker.scripts[path] = module
    return module
