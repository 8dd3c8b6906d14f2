"""A function that no worker can import is refused by name, with the reason and a remedy."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from checkrein.calls.imports import Target, target_of
from checkrein.errors import NotImportable
from tests.support import tools


class Shop:
    def sell(self) -> None: ...

    @classmethod
    def open(cls) -> None: ...

    @staticmethod
    def close() -> None: ...


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorated
def well_decorated() -> None: ...


def test_functions_methods_of_classes_and_decorated_ones_are_found_by_name():
    assert target_of(tools.add) == Target("tests.support.tools", "add")
    assert target_of(Shop.open) == Target(__name__, "Shop.open")
    assert target_of(Shop.close) == Target(__name__, "Shop.close")
    assert target_of(well_decorated) == Target(__name__, "well_decorated")
    assert target_of(well_decorated.__wrapped__) == Target(__name__, "well_decorated")
    assert target_of(time.sleep) == Target("time", "sleep")


def refusal_of(function) -> str:
    with pytest.raises(NotImportable) as caught:
        target_of(function)
    assert caught.value.reason in caught.value.message
    assert "top level of a module" in caught.value.message
    assert 'isolation="thread"' in caught.value.message
    assert "async def" in caught.value.message
    return caught.value.message


def test_each_reason_is_named():
    secret = 1

    def closure():
        return secret

    def local(): ...

    made = ModuleType("made_at_run_time")
    exec("def f(): ...", made.__dict__)
    sys.modules["made_at_run_time"] = made

    assert "is a lambda" in refusal_of(lambda: None)
    assert "closure" in refusal_of(closure)
    assert "(secret)" in refusal_of(closure)
    assert "inside the function test_each_reason_is_named" in refusal_of(local)
    assert "bound method, and its Shop object" in refusal_of(Shop().sell)
    assert "functools.partial" in refusal_of(functools.partial(tools.add, 1))
    assert "object without a module and a name" in refusal_of(type("Thing", (), {"__call__": lambda self: 1})())
    assert "made at run time" in refusal_of(made.f)
    del sys.modules["made_at_run_time"]
    assert "not one that can be imported" in refusal_of(made.f)


def test_a_name_that_means_something_else_by_now_is_noticed(monkeypatch):
    before = tools.add
    monkeypatch.setattr(tools, "add", tools.fail)

    assert "is something else by now" in refusal_of(before)


def run(source: str, *how: str, stdin: bool = False) -> str:
    command = [sys.executable, "-", *how] if stdin else [sys.executable, *how, source]
    given = source if stdin else None
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


ASK = """
from checkrein.errors import NotImportable
from checkrein.calls.imports import target_of
def tool(): ...
def main():
    try:
        print(target_of(tool))
    except NotImportable as error:
        print(error)
"""


def test_what_was_typed_at_a_prompt_or_given_with_c_is_refused():
    assert "typed in at a prompt, or given with -c" in run(ASK + "main()", "-c")
    assert "typed in at a prompt" in run(ASK + "main()", stdin=True)


def test_a_notebook_cell_is_refused():
    assert "notebook cell" in run("get_ipython = None" + ASK + "main()", "-c")


def test_a_script_is_found_by_its_path_and_one_without_a_guard_is_refused(tmp_path: Path):
    guarded, bare = tmp_path / "guarded.py", tmp_path / "bare.py"
    guarded.write_text(ASK + 'if __name__ == "__main__":\n    main()\n')
    bare.write_text(ASK + "main()\n")

    assert re.search(rf"qualname='tool', path='{re.escape(str(guarded))}'", run(str(guarded)))
    assert 'no `if __name__ == "__main__":`' in run(str(bare))
