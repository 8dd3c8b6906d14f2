"""Who turns the crank: drivers, replay, calls and how they are really stopped."""
