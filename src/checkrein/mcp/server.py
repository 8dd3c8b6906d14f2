"""What an author writes: an MCP server as a source of tools. Nothing is started or reached before a run needs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from checkrein.calls.executor import ToolExecutor, lent_executor
from checkrein.calls.imports import path_of
from checkrein.errors import MCPUnavailable, MisuseError
from checkrein.mcp.tools import MCPTool, Offer, shown_name, statements
from checkrein.secrets.known import in_environment, in_headers

if TYPE_CHECKING:
    from checkrein.mcp.connection import Connection

START_SECONDS: Final = 30.0
"""How long a server may take until it can be asked for its tools."""


class MCP:
    """A server of tools that speaks the Model Context Protocol, among the `tools` of an agent.

    `MCP("notes", command=["python", "notes_server.py"])` is started with the first run that needs it and ended, with
    every process that came from it, when the runtime is closed or dies. It gets PATH, HOME and the like, and `env`; not
    the rest of this program's environment. `MCP("wiki", url="https://…/mcp", headers={…})` is reached over HTTP. Either
    way all runs of a runtime share one session.

    `only` names the tools that are wanted, `prefix` goes before their names. `tools` says of each, by the server's name
    for it, what the runtime must know: `{"delete_note": {"effect": "irreversible", "undo": restore}}`. What the server
    itself says of its tools (read-only, idempotent, destructive) counts only with `trust_annotations=True`.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        only: Iterable[str] | None = None,
        prefix: str = "",
        tools: Mapping[str, Mapping[str, Any]] | None = None,
        trust_annotations: bool = False,
        start_timeout: float = START_SECONDS,
    ) -> None:
        self.name = name
        self.command = None if command is None else tuple(map(os.fspath, command))
        self.env = dict(env or {})
        self.cwd = None if cwd is None else os.fspath(cwd)
        self.url = url
        self.headers = dict(headers or {})
        self.only = None if only is None else frozenset(only)
        self.prefix = prefix
        self.statements = statements(name, tools or {})
        self.trust_annotations = trust_annotations
        self.start_seconds = start_timeout
        self._check(command)

    def _check(self, command: Sequence[str] | None) -> None:
        if (self.command is None) is (self.url is None):
            raise MisuseError(f"MCP server {self.name} needs either a command or a url, and not both.")
        if isinstance(command, str) or self.command == ():
            raise MisuseError(f'MCP server {self.name}: give the command as a list, such as ["python", "server.py"].')
        if self.url is not None and urlsplit(self.url).scheme not in ("http", "https"):
            raise MisuseError(f"MCP server {self.name}: {self.place} is no http or https address.")
        if self.url is not None and (self.env or self.cwd):
            raise MisuseError(f"MCP server {self.name} is reached by url; env and cwd are for a command.")
        if self.command is not None and self.headers:
            raise MisuseError(f"MCP server {self.name} is a command; headers are for a url. Use env.")
        if self.only is not None and (unwanted := self.statements.keys() - self.only):
            raise MisuseError(f"MCP server {self.name}: tools= says something of {_names(unwanted)}, not among only=.")
        if find_spec("mcp") is None:
            raise MisuseError("MCP servers need the package mcp: pip install 'checkrein[mcp]'.")

    def __repr__(self) -> str:
        return f"<MCP {self.name}>"

    @property
    def key(self) -> tuple[object, ...]:
        """The same for what can share one session."""
        env, headers = frozenset(self.env.items()), frozenset(self.headers.items())
        return "mcp", self.name, self.command, self.cwd, env, self.url, headers

    @property
    def place(self) -> str:
        """Where it is, in words that tell no secret: arguments and queries may hold one."""
        if self.url is None:
            return "" if self.command is None else self.command[0]
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    # -- tools

    def tool(self, name: str) -> MCPTool:
        """One of its tools, for `ctx.tool(notes.tool("add_note"), text="…")` in a program.

        Only what the author has said of it is known; the server is not asked.
        """
        return MCPTool(self, Offer(name=name))

    def chosen(self, offers: Iterable[Offer]) -> list[MCPTool]:
        """The tools that are wanted of those the server offers. Raises `MCPUnavailable` where one is not there."""
        found = {offer.name: MCPTool(self, offer) for offer in offers}
        missing = {*(self.only or ()), *self.statements} - found.keys()
        if missing:
            raise MCPUnavailable(
                f"The MCP server {self.name} has no tool {_names(missing)}; it has: {_names(found) or 'none'}.",
                remedy="Mend what MCP(only=…, tools=…) names, then resume.",
                server=self.name,
            )
        return [tool for name, tool in found.items() if self.only is None or name in self.only]

    async def call(self, tool: str, /, **arguments: Any) -> Any:
        """Use one of its tools from within an `async def` undo or verify, and return its result.

        It is part of that undo or check and stops with it. Raises `CallFailed` when it fails.
        """
        executor = lent_executor.get()
        if executor is None:
            raise MisuseError(f"{self.name}.call() works in an undo or a verify; elsewhere make a tool call of it.")
        return await self.connection(executor).call(tool, arguments)

    def connection(self, executor: ToolExecutor) -> Connection:
        """The one connection to this server that the runtime of `executor` has."""
        from checkrein.mcp.connection import Connection

        def connect() -> Connection:
            # Before it is told them: what it gives back of them is redacted like any other secret.
            executor.learn_secrets({**in_environment(self.env), **in_headers(self.headers)})
            return Connection(self, executor.runtime)

        return executor.keep(self.key, connect)

    # -- what its statements bring along

    def functions(self) -> Iterator[Callable[..., Any]]:
        """What undoes and checks its tools."""
        for said in self.statements.values():
            yield from filter(None, (said.undo, said.verify))

    def undo_at(self, path: str | None) -> Callable[..., Any] | None:
        """The undo function that a run has recorded under this path, if it is one of these."""
        undos = (said.undo for said in self.statements.values() if said.undo is not None)
        return next((undo for undo in undos if path_of(undo) == path), None)

    def verify_of(self, shown: str) -> Callable[..., Any] | None:
        """What checks the tool that an agent knows under this name."""
        names = (name for name in self.statements if shown_name(self.prefix, name) == shown)
        return next((self.statements[name].verify for name in names), None)


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
