"""One path for every verb: load, decide, append, and the receipt."""
