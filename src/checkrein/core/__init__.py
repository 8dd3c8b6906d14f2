"""What may happen to a run. Pure: no await, no clock, no randomness, no I/O; times and ids arrive inside events."""
