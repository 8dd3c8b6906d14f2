"""Calls of tools in this process: of an `async def` in a task, of a `def` with `isolation="thread"` in a thread."""
