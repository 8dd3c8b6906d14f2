"""Who may come in: the server's own token, the names it goes by, and the address that lets a browser in once."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fastapi import FastAPI

from checkrein.server.app import create_app
from checkrein.server.auth.exposure import EVERYWHERE, check_exposure
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.keys import Keys, access_folder
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.server_token import OPERATOR, VARIABLE, server_token
from checkrein.server.front.admission import MOST_PER_SECOND
from checkrein.server.front.backend import FrontBackend


class Entrance:
    """The keys to one store, and a guard that knows them.

    Raises `WrongInput` for a token that is too short, keys that others may read, or a host beyond loopback that was not
    asked for in so many words: with a token in the environment, and the names that others use.
    """

    def __init__(
        self,
        store: str,
        host: str,
        names: Sequence[str] = (),
        *,
        proxies: Sequence[str] = (),
        frame_ancestors: Sequence[str] = (),
    ) -> None:
        hosts = check_exposure(host, token=os.environ.get(VARIABLE), names=names)
        folder = access_folder(store)
        self._token = server_token(folder)
        self._keys = Keys(folder)
        self._keys.trust(self._token, OPERATOR)
        policy = Policy(hosts=hosts, proxies=proxies, frame_ancestors=frame_ancestors)
        self._guard = Guard(self._keys, policy=policy)
        shown = (hosts[0] if hosts else "127.0.0.1") if host in EVERYWHERE else host
        self._shown = f"[{shown}]" if ":" in shown else shown

    def application(self, backend: FrontBackend) -> FastAPI:
        """The API and the page, behind the guard."""
        # The front admits streams before they get this far; what slips by is counted here.
        return create_app(backend, self._guard, streams_per_second=2 * MOST_PER_SECOND)

    def link(self, port: int) -> str:
        """An address that opens the page, once, within a few minutes."""
        return f"http://{self._shown}:{port}/enter?code={self._keys.new_code(self._token)}"
