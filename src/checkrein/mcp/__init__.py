"""Tools of MCP servers: started as a command or reached by URL, called with a permit, told to stop, ended in the end.

server       MCP: what an author writes; names no server yet
tools        what the author says of a tool, the tool as an agent sees it, and those that the servers lend to one run
connection   one server and one runtime: opened when needed, opened again when lost, closed with the runtime
session      the wire; with `requests` the only one to import the package `mcp`, and imported when a server is needed
requests     which request a call became
"""

from checkrein.mcp.server import MCP

__all__ = ["MCP"]
