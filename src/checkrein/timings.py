"""How long things may take, where one of them must be longer than another.

Each of these times depends on others here; `tests/test_timings.py` says how, and fails where a change breaks it. A time
that nothing else depends on stands in the module that waits for it. Only numbers are here, and nothing is imported:
worker processes and the supervisor read it too.
"""

# -- stopping one call

TOOL_GRACE_SECONDS = 2.0
"""How long a tool, task or process, is given to end in order before it is killed or let go."""
KILL_SECONDS = 1.0
"""How long killing what has not ended in its grace may take before it counts as slow: freeze all, kill all, look."""
KILL_LIMIT_SECONDS = 5.0
"""After so long of killing, whoever still lives is reported as one that could not be ended."""
LET_GO_SECONDS = 3.0
"""How long a stream of a model may take to end once it is stopped. It is told again half-way, and then let go."""
CLOSE_SECONDS = 2.0
"""How long a stream may take to close its connection once nobody reads it any more."""
TELL_SECONDS = 1.0
"""How long telling an MCP server to stop may take. A server that does not even read is let go."""
HOLD_SECONDS = 0.25
"""How long a pause waits for a task or a thread to come to a checkpoint before it says: not yet."""

# -- settling a verb

WAIT_SECONDS = 5.0
"""How long a verb, or a halt, waits for its receipt before it says what it still waits for."""
SETTLE_SECONDS = 30.0
"""How long a cancel may wait for what is being stopped, in doubt or being undone before it settles without."""
DETACH_SECONDS = 10.0
"""How long a cancel waits for a call that does not answer its stop. Then the call is detached, and the undos begin."""
UNDO_SECONDS = 30.0
"""How long the undo of one effect may take, all its tries together, where no other waits for its turn."""
UNDO_LEAST_SECONDS = 2.0
"""How long it may take at least, however many wait: what is left of a cancel's time is shared out among them."""
CHECK_SECONDS = 30.0
"""How long the check of a call in doubt may take."""

# -- owning a run

LEASE_SECONDS = 15.0
"""How long a process that gives no sign of life keeps its runs from others."""
LEASE_MARGIN_SECONDS = 3.0
"""Before its end a lease is given up: the grace of a tool, and some time to kill it. Of a short lease, a third."""
LEASE_RENEWALS = 5
"""How often a lease is renewed while it lasts."""
SIGNS_OF_LIFE = 3
"""How often a worker says that it lives while its last word counts."""
CONTROL_LEASE_SECONDS = 5.0
"""The lease of whoever settles a verb of a run that nobody drives; it runs no code of an agent."""
STORE_PATIENCE_SECONDS = 10.0
"""How long a write waits for other writers of the same store before it says that the store is kept locked."""
RECLAIM_SECONDS = 2.0
"""How often runs are looked for whose owner has died."""
CLAIM_SECONDS = 1.0
"""How often it is asked which runs are free: nobody drives them, or whoever did has gone silent."""

# -- a driver that does not answer

WATCHDOG_GRACE_SECONDS = 4.0
"""How long a stop may wait for an event loop that does not answer before its process is killed."""
HALT_GRACE_SECONDS = 2.0
"""How long a halt may wait for an event loop that does not answer before its process is killed."""
HALT_LOOK_SECONDS = 1.0
"""How often it is looked for halts that nobody told of."""
WATCHDOG_LIMIT_SECONDS = 6.0
"""How long at most, also where the process had to wait for a processor, which does not count as not answering."""
HEARTBEAT_SECONDS = 0.25
"""How often an event loop for which a stop waits is asked for a heartbeat."""

SILENT_SECONDS = 5.0
"""A driver that does not answer its front for so long counts as not ready."""
DRIVER_SILENT_SECONDS = 30.0
"""A driver that does not answer its front for so long is killed and started again, though no stop waits for it."""

# -- a process that ends, or is gone

SHUT_DOWN_SECONDS = 10.0
"""How long a run is given to be paused durably when its process ends."""
DRIVER_END_SECONDS = 15.0
"""How long a driver process may take to end, all its runs paused, before the supervisor ends it."""
DRIVERS_END_SECONDS = 20.0
"""How long the front waits for its drivers to end before it kills them itself."""
SUPERVISOR_LOOK_SECONDS = 0.5
"""How often a supervisor looks whether its runtime lives, where the system does not tell it."""
SUPERVISOR_AGAIN_SECONDS = (0.05, 0.2, 0.5)
"""After nobody was found it looks again: a child that was just being started carries its mark a moment later."""
ORPHAN_SECONDS = 3.0
"""How long a worker lives on without its runtime: the supervisor goes first, which finds everything only as long as the
worker still holds its children together."""
