"""Why a server cannot be used, in words, and what a person can do about it."""

from __future__ import annotations

from typing import Final

from checkrein.agents.mcp.source import MCP
from checkrein.errors import MCPUnavailable

CLOSED: Final = -32000
"""The code under which the package `mcp` reports that a connection was closed."""


def explain(
    source: MCP, error: BaseException, *, said: str = "", trouble: object = None, refusal: int | None = None
) -> MCPUnavailable:
    """`said` is what the server wrote last to its standard error, `refusal` the HTTP status it answered with."""
    what, remedy = (_of_url if source.url is not None else _of_command)(source, _first(error), said, trouble, refusal)
    return MCPUnavailable(f"The MCP server {source.name} {what}.", remedy=remedy, server=source.name)


def _of_command(source: MCP, error: BaseException, said: str, *_: object) -> tuple[str, str]:
    place = source.place
    if isinstance(error, FileNotFoundError | NotADirectoryError) and source.cwd and error.filename == source.cwd:
        return f"cannot be started: there is no folder {source.cwd}", "Mend MCP(cwd=…), then resume."
    if isinstance(error, FileNotFoundError):
        return f"cannot be started: there is no command {place}", "Install it, or mend MCP(command=…), then resume."
    words = f"; it said: {said}" if said else ""
    if isinstance(error, TimeoutError):
        what = f"did not answer within {source.start_seconds:g} s{words}"
        return what, "See that it speaks MCP on its standard output, or give it more start_timeout, then resume."
    if isinstance(error, OSError):
        return f"cannot be started: {error.strerror or error}", "Mend MCP(command=…), then resume."
    if getattr(error, "code", None) == CLOSED:
        return f"ended before it could be used{words}", f"Run {place} by hand to see why, mend it, then resume."
    return f"cannot be used: {error}", "Mend the server, then resume."


def _of_url(source: MCP, error: BaseException, _: str, trouble: object, refusal: int | None) -> tuple[str, str]:
    place = source.place
    if trouble is not None:
        return f"cannot be reached at {place}: {trouble}", "Start it, or mend MCP(url=…), then resume."
    if refusal in (401, 403):
        return f"at {place} does not let us in (HTTP {refusal})", "Give MCP(headers=…) a valid token, then resume."
    if refusal == 404:
        return f"is not at {place} (HTTP 404)", "Mend MCP(url=…), then resume."
    if refusal is not None:
        return f"at {place} answers with HTTP {refusal}", "Look at the server, then resume."
    if isinstance(error, TimeoutError):
        return f"did not answer within {source.start_seconds:g} s at {place}", "See that it lives, then resume."
    return f"at {place} cannot be used: {error}", "Mend the server, then resume."


def _first(error: BaseException) -> BaseException:
    """Task groups wrap what went wrong in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
