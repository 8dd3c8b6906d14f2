"""The token that resets: an operator's own token halts, and only this one lifts what was halted.

Whoever may stop everything should be easy to find in the night; whoever lets it begin again should have thought about
it. So it is another secret, known to the front alone: drivers are not told it, not even to redact it. They know it for
one by its prefix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from checkrein.errors import WrongInput
from checkrein.server.auth.principals import Action, Principal, Role
from checkrein.server.auth.token_store import DRAW, SHORTEST, TOKEN

HALT_VARIABLE: Final = "CHECKREIN_HALT_TOKEN"

HALTER: Final = Principal(name="halt token", role=Role.OPERATOR, rights=(Action.OPERATE, Action.RESET))
"""Whoever bears it: they halt and reset, and see no run."""


def halt_token(server_token: str, environment: Mapping[str, str] = os.environ) -> str:
    """The token of the environment that resets; empty where none is set, and then nobody resets over HTTP.

    Raises `WrongInput` for one that could be guessed, would not be known for a secret, or is the server's own.
    """
    given = environment.get(HALT_VARIABLE, "")
    if not given:
        return ""
    if len(given) < SHORTEST or not given.startswith(TOKEN) or not given.isascii() or not given.isprintable():
        raise WrongInput(
            f"The token in {HALT_VARIABLE} must begin with {TOKEN} and have {SHORTEST} or more characters of ASCII; "
            f"draw one with {DRAW}.",
            code="weak_token",
        )
    if given == server_token:
        raise WrongInput(
            f"{HALT_VARIABLE} holds the server's own token, so that whoever halts could reset; draw another one with "
            f"{DRAW}.",
            code="weak_token",
        )
    return given
