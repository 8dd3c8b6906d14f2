"""Commands of whoever serves and operates runs: servers, workers, stores, tokens, halts, evidence."""
