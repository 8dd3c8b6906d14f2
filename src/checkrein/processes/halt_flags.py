"""Flags of a host: a halt as a file, in force on this host whether or not the store can be reached.

One file for each scope of each store. Its name alone halts, `KEY.all` or `KEY.agent.DIGEST`; what is in it only says
who, why and since when, so a file that is empty or torn halts too. `KEY` stands for the store, `DIGEST` for the name.

They are kept in `$CHECKREIN_HALT_DIR`. Without it root keeps them in `/var/lib/checkrein/halt`, for everybody on the
host, anybody else below their own home; both are heeded.

Standard library only, and nothing is cached but a look at a folder that has not changed since.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

VARIABLE: Final = "CHECKREIN_HALT_DIR"
_OF_HOST: Final = "/var/lib/checkrein/halt"
_OF_USER: Final = "~/.local/state/checkrein/halt"
_LOOK_SECONDS: Final = 0.5
"""A folder is looked into so often also where its time says that nothing has changed: that time is coarse."""


class Flag(NamedTuple):
    """A halt of this host."""

    scope: str
    name: str
    by: str = ""
    reason: str = ""
    at: float = 0.0
    host: str = ""
    id: str = ""
    """Under which it was asked of the store."""
    path: str = ""


def folders() -> tuple[str, ...]:
    """Where flags are looked for."""
    said = os.environ.get(VARIABLE)
    return (os.path.abspath(said),) if said else (_OF_HOST, os.path.expanduser(_OF_USER))


def own_folder() -> str:
    """Where this user puts them."""
    said = folders()
    return said[0] if len(said) == 1 or os.geteuid() == 0 else said[1]


def store_key(store: str) -> str:
    """What stands for a store in the names of its flags: the file, or the database and its schema by whatever address.

    Two databases of one name on two servers share their flags: better one run too many that stops.
    """
    if store.startswith(("postgresql://", "postgres://")):
        place, _, query = store.partition("?")
        schema = next((part[7:] for part in query.split("&") if part.startswith("schema=")), "checkrein")
        base = place.partition("://")[2].partition("/")[2] or "postgres"
        store = f"postgresql {base} {schema}"
    elif store != "memory:":
        store = os.path.realpath(os.path.expanduser(store.removeprefix("sqlite:///")))
    return sha256(store.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def file_name(key: str, scope: str, name: str) -> str:
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{key}.{scope}" if scope == "all" else f"{key}.{scope}.{digest}"


def put_up(store: str, flag: Flag) -> Flag:
    """Put up a flag, durably. One that is up keeps its words; it is returned. Raises `OSError`."""
    folder = own_folder()
    os.makedirs(folder, 0o755, exist_ok=True)
    path = os.path.join(folder, file_name(store_key(store), flag.scope, flag.name))
    if (found := _read(path)) is not None:
        return found
    try:
        _write(path, flag)
    except OSError:  # no room for its words, perhaps: its name alone halts
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
        _sync(folder)
    return flag._replace(path=path)


def is_recorded(flag: Flag, id: str) -> None:
    """A flag that was up before is in the store now, under this id: a reset of that takes it down wherever it is asked
    for. Its words stay. A flag that cannot be written stays as it is, and is taken down on its host."""
    with suppress(OSError):
        _write(flag.path, flag._replace(id=id))


def _write(path: str, flag: Flag) -> None:
    draft = f"{path}.new-{os.getpid()}"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(handle, json.dumps(flag._replace(path="")._asdict()).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(draft, path)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)
        raise
    _sync(os.path.dirname(path))


def take_down(store: str, scope: str, name: str) -> bool:
    """Whether there was a flag of this scope, which is gone now. Raises `OSError` for one that may not be removed."""
    wanted, was_up = file_name(store_key(store), scope, name), False
    for folder in folders():
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, wanted))
            _sync(folder)
            was_up = True
    return was_up


def read(store: str) -> tuple[Flag, ...]:
    """Every flag of a store, the oldest first."""
    flags = [flag for folder in folders() for path in _paths(folder, store_key(store)) if (flag := _read(path))]
    return tuple(sorted(flags, key=lambda flag: flag.at))


def _paths(folder: str, key: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(f"{key}.") and ".new-" not in name]


def _read(path: str) -> Flag | None:
    try:
        with open(path, "rb") as file:
            said: Any = json.loads(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        said = {}
    scope = os.path.basename(path).split(".")[1]
    said = said if isinstance(said, dict) else {}
    name, by, reason, host, id = (str(said.get(word) or "") for word in ("name", "by", "reason", "host", "id"))
    at = said.get("at")
    return Flag(scope, name, by, reason, float(at) if isinstance(at, int | float) else 0.0, host, id, path)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Flags:
    """The flags of one store, asked before every call: two system calls while nothing changes."""

    def __init__(self, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.store = store
        self._key = store_key(store)
        self._folders = folders()
        self._clock = clock
        self._seen: tuple[int | None, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._next_look = 0.0

    def names(self) -> frozenset[str]:
        """The names of the files that are up."""
        seen, now = tuple(_changed(folder) for folder in self._folders), self._clock()
        if seen != self._seen or now >= self._next_look:
            self._seen, self._next_look = seen, now + _LOOK_SECONDS
            paths: Iterable[str] = (path for folder in self._folders for path in _paths(folder, self._key))
            self._names = frozenset(os.path.basename(path) for path in paths)
        return self._names

    def covers(self, *, runs: Collection[str], agent: str, owner: str, among: frozenset[str] | None = None) -> bool:
        """Whether a run is halted here: `runs` are its own id and those of the runs above it.

        `among` are the names that are up, for somebody who asks about many runs: to look takes longer than the rest.
        """
        up = self.names() if among is None else among
        if not up:
            return False
        wanted = [("all", ""), ("agent", agent), ("owner", owner), *(("run", run) for run in runs)]
        return any(file_name(self._key, scope, name) in up for scope, name in wanted)


def _changed(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None
