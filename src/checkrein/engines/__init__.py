"""Where a driver lives. Never what is true: that is the journal's."""
