"""Tools of MCP servers: started as a command or reached by URL, called with a permit, told to stop, ended in the end.

source       MCP: what an author writes; names no server yet
statement    what the author says of a tool, and the tool as an agent sees it
supply       the tools that the servers lend to one run
performing   one call, and what stopping it means
connection   one server and one runtime: opened when needed, opened again when lost, closed with the runtime
wire         the only module that imports the package `mcp`; it is imported when a server is needed
"""

from checkrein.agents.mcp.source import MCP

__all__ = ["MCP"]
