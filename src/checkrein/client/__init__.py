"""A server's runs from another program: `Client`, and `AsyncClient` for one that is async."""

from __future__ import annotations

from checkrein.client.async_client import AsyncClient
from checkrein.client.async_run import AsyncRunHandle
from checkrein.client.sync_client import Client, RunHandle

__all__ = ["AsyncClient", "AsyncRunHandle", "Client", "RunHandle"]
