"""Folders and files that only their owner may read, and the refusal to trust any other."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from checkrein.errors import WrongInput
from checkrein.journal.sqlite.database import NOT_WRITABLE, make_folders, not_writable


def make_private_folder(folder: Path) -> None:
    """On return `folder` is there, ours, and closed to everybody else. Raises `WrongInput` where it is not."""
    try:
        make_folders(str(folder.parent))
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        found = os.lstat(folder)
    except OSError as error:
        raise _unusable(folder, error) from None
    if not stat.S_ISDIR(found.st_mode):
        raise WrongInput(f"{folder} is not a folder; move it away.", code="not_private")
    _must_be_private(folder, found, "700")


def make_private_file(path: Path) -> None:
    """On return `path` is a file of ours that nobody else may read; it is made, empty, where there is none."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    except FileExistsError:
        check_private_file(path)
    except OSError as error:
        raise _unusable(path, error) from None


def check_private_file(path: Path) -> None:
    """Raise `WrongInput` for a file that is not ours, is a link, or may be read or written by others."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise _unusable(path, error) from None
    _must_be_a_private_file(path, found)


def read_private(path: Path) -> str | None:
    """What a private file says; None where there is none. Looks at the very file that it reads."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None
    with open(number) as file:
        _must_be_a_private_file(path, os.fstat(file.fileno()))
        return file.read()


def write_private(path: Path, text: str) -> bool:
    """Make a private file with `text` in it, whole or not at all; False where there is one by now."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _unusable(path, error) from None
    finally:
        draft.unlink(missing_ok=True)
    return True


def _must_be_a_private_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise WrongInput(f"{path} is not a plain file; move it away.", code="not_private")
    _must_be_private(path, found, "600")


def _must_be_private(path: Path, found: os.stat_result, wanted: str) -> None:
    if found.st_uid != os.geteuid():
        raise WrongInput(
            f"{path} belongs to another user (number {found.st_uid}); move it away, or run as that user.",
            code="not_private",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise WrongInput(
            f"{path} is open to other users (mode {mode:04o}), and it holds what lets people stop runs. Close it with "
            f"`chmod {wanted} {path}`; if somebody may have read a token in it, remove it and have a new one made.",
            code="not_private",
        )


def _unusable(path: Path, error: OSError) -> WrongInput:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WrongInput(not_writable(path, error), code=NOT_WRITABLE)
    return WrongInput(f"{path} cannot be used: {error.strerror or error}.", code="not_private")
