"""The server's own token: whoever started the server is its first operator.

It comes from `CHECKREIN_TOKEN`, or is made once and kept in a 0600 file beside the keys, so that it outlives the
server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from checkrein.errors import WrongInput
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.private import make_private_folder, read_private, write_private
from checkrein.server.auth.secret import TOKEN, new_secret

VARIABLE: Final = "CHECKREIN_TOKEN"
FILE: Final = "server-token"
SHORTEST: Final = 32
"""Characters. A token that somebody thought up can be guessed; one this long was hopefully drawn."""

OPERATOR: Final = Principal(name="operator", role=Role.OPERATOR)


def server_token(folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The token of the server whose keys are in `folder`; made where there is none.

    Raises `WrongInput` for a variable that is too short, and for a file that others may read.
    """
    given = environment.get(VARIABLE, "")
    if given:
        return _checked(given, VARIABLE)
    make_private_folder(folder)
    path = folder / FILE
    kept = read_private(path)
    if kept is None:
        write_private(path, f"{new_secret(TOKEN)}\n")
        kept = read_private(path) or ""
    return _checked(kept.strip(), str(path))


def _checked(token: str, where: str) -> str:
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise WrongInput(
            f"The token in {where} must be {SHORTEST} or more characters of ASCII without spaces; draw one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'`, or leave it out to have one made.",
            code="weak_token",
        )
    return token
