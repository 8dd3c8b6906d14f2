"""What a project says once instead of in every command: `checkrein.toml`, or `[tool.checkrein]` in `pyproject.toml`.

The nearest one counts, from the current folder upwards. Paths in it begin at its own folder. An option and an
environment variable come before it. What cannot be meant is refused: a store that is misspelt must not become another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from checkrein.errors import CheckreinError, WrongInput

FILE: Final = "checkrein.toml"
PROJECT: Final = "pyproject.toml"
_TABLE: Final = "[tool.checkrein]"


class Config(NamedTuple):
    values: Mapping[str, Any] = {}
    path: Path | None = None
    """Where it was found."""

    def get(self, name: str) -> Any:
        return self.values.get(name)


def configured(folder: Path | None = None) -> Config:
    """What is said for `folder`, which is the current one if left out. Raises `WrongInput` for what cannot be meant."""
    here = Path.cwd() if folder is None else folder
    for parent in (here, *here.parents):
        if (parent / FILE).is_file():
            return _checked(parent / FILE, _read(parent / FILE), FILE)
        project = parent / PROJECT
        if project.is_file() and b"checkrein" in _bytes(project):
            table = _read(project).get("tool", {})
            if isinstance(table, dict) and "checkrein" in table:
                return _checked(project, table["checkrein"], f"{_TABLE} of {PROJECT}")
    return Config()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WrongInput(f"{path} cannot be read: {error.strerror or error}.", code="config") from None


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(_bytes(path).decode())
    except ValueError as error:  # no TOML, or no UTF-8
        raise WrongInput(f"{path} is not TOML: {error}.", code="config") from None


def _checked(path: Path, table: Any, where: str) -> Config:
    if not isinstance(table, dict):
        raise WrongInput(f"{where} must be a table, in {path}.", code="config")
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _KEYS:
            raise WrongInput(
                f"{name!r} in {path} is nothing that can be set; there are: {', '.join(_KEYS)}.", code="config"
            )
        kind, what = _KEYS[name]
        if not isinstance(value, kind) or isinstance(value, bool) or not _is_allowed(name, value):
            raise WrongInput(f"{name} in {path} must be {what}, not {value!r}.", code="config")
        values[name] = _from(path.parent, name, value)
    return Config(values, path)


_KEYS: Final[Mapping[str, tuple[type, str]]] = {
    "file": (str, "a Python file with agents, or a module as in shop.agents:agent"),
    "store": (str, "a path, or an address such as sqlite:///runs.db"),
    "listen_store": (str, "an address of PostgreSQL"),
    "port": (int, "a whole number from 0 to 65535"),
}


def _is_allowed(name: str, value: Any) -> bool:
    return 0 <= value <= 65535 if name == "port" else bool(value.strip())


def _from(folder: Path, name: str, value: Any) -> Any:
    """Where a path leads that begins at `folder`, as it is written from here."""
    if name in ("port", "listen_store"):
        return value
    if name == "file":
        is_module = not value.partition(":")[0].endswith(".py")
        return value if is_module else _relative(folder, value)
    from checkrein.journal import SQLITE, address_of, file_of

    try:
        address = address_of(value)
    except CheckreinError as error:
        raise WrongInput(f"store in {folder}: {error.message}", code="config") from None
    path = file_of(address)
    return address if path is None else SQLITE + _relative(folder, path)


def _relative(folder: Path, path: str) -> str:
    return path if os.path.isabs(path) else os.path.relpath(folder / path)
