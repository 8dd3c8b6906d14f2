"""How a worker imports a tool, and why nothing that it imports may start a runtime.

Imports little: every worker starts with it.

Which functions another process can import, and why not the others.

A worker gets the name of a tool, not its code. So a tool that runs in a worker must be found by module and name, and
importing its module must not start the program once more.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
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
    if not callable(found):  # a framework's tool, in whose name its function is hidden
        found = getattr(found, "__wrapped__", None)
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


__all__ = ["Target", "target_of"]

_TYPED: Final = "it was typed in at a prompt, or given with -c, and has no file to import it from"

_REMEDIES: Final = (
    'Move it to the top level of a module, declare it with isolation="thread", or make it an `async def`.'
)


def target_of(function: Callable[..., Any]) -> Target:
    """Where another process finds `function`, or `NotImportable`, with the reason and what to do about it."""
    reason = _why_not_by_kind(function)
    if reason is None:
        reason = _why_not_by_module(function)
    if reason is not None:
        raise _refusal(function, reason)
    module, qualname = function.__module__, function.__qualname__
    if module != "__main__":
        return Target(module, qualname)
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.module
        return Target(main.__spec__.name, qualname)
    return Target(module, qualname, os.path.abspath(str(main.__file__)))


def _refusal(function: Callable[..., Any], reason: str) -> NotImportable:
    name = getattr(function, "__qualname__", None) or repr(function)
    return NotImportable(f"{name} cannot run in a worker process: {reason}. {_REMEDIES}", function=name, reason=reason)


def _why_not_by_kind(function: Callable[..., Any]) -> str | None:
    if isinstance(function, functools.partial):
        return "it is a functools.partial, which has no name to be imported by"
    if inspect.ismethod(function) and not inspect.isclass(function.__self__):
        return f"it is a bound method, and its {type(function.__self__).__name__} object exists only in this process"
    qualname = getattr(function, "__qualname__", "")
    if not qualname or not getattr(function, "__module__", None):
        return "it is an object without a module and a name to be imported by"
    if qualname.rpartition(".")[2] == "<lambda>":
        return "it is a lambda, which has no name to be imported by"
    if "<locals>" in qualname:
        return _why_local(function, qualname.partition(".<locals>")[0])
    return None


def _why_local(function: Callable[..., Any], outer: str) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None and code.co_freevars:
        names = ", ".join(code.co_freevars)
        return f"it is a closure, made inside {outer}, over values that exist only in this process ({names})"
    return f"it is defined inside the function {outer}, where no import can reach it"


def _why_not_by_module(function: Callable[..., Any]) -> str | None:
    module = sys.modules.get(function.__module__)
    if module is None:
        return f"its module {function.__module__} is not one that can be imported"
    if function.__module__ == "__main__":
        is_typed = getattr(inspect.unwrap(function), "__globals__", vars(module)) is not vars(module)
        reason = _TYPED if is_typed else _why_not_from_main(module)  # `python -m asyncio` has a module of its own
        if reason is not None:
            return reason
    elif module.__spec__ is None:
        return f"its module {function.__module__} was made at run time and has no file to import it from"
    return _why_not_by_name(function, module)


def _why_not_from_main(main: ModuleType) -> str | None:
    if main.__spec__ is not None:
        return None
    if "ipykernel" in sys.modules or hasattr(main, "get_ipython"):
        return "it is defined in a notebook cell, which another process cannot import"
    path = getattr(main, "__file__", None)
    if path is None or not os.path.isfile(path):
        return _TYPED
    if not _has_guard(path):
        return (
            f'its script {path} has no `if __name__ == "__main__":`, so a worker that imports it would run the whole '
            "program again; put what starts the program under that line"
        )
    return None


@functools.lru_cache(maxsize=8)
def _has_guard(path: str) -> bool:
    with open(path, "rb") as file:
        tree = ast.parse(file.read(), path)
    return any(isinstance(node, ast.If) and _compares_name(node.test) for node in tree.body)


def _compares_name(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))


def _why_not_by_name(function: Callable[..., Any], module: ModuleType) -> str | None:
    try:
        found = look_up(module, function.__qualname__)
    except AttributeError:
        return f"{module.__name__} has no {function.__qualname__}"
    if found is function or found == function or inspect.unwrap(found) is inspect.unwrap(function):
        return None
    return f"{function.__qualname__} in {module.__name__} is something else by now"


def path_of(function: Callable[..., Any]) -> str:
    """Where an undo function can be found again after a restart."""
    return f"{function.__module__}:{function.__qualname__}"
