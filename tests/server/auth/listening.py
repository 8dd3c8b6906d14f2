"""A real server on a real port, for requests that only a socket or a browser can make."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.support.patience import PATIENCE_SECONDS


@contextmanager
def listening_on(app: Any) -> Iterator[int]:
    """The port of 127.0.0.1 on which `app` answers, in a thread of its own."""
    config = uvicorn.Config(app, log_level="error", proxy_headers=False, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not server.started:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(timeout=PATIENCE_SECONDS)
