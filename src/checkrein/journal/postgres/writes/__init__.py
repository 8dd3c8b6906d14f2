"""Writing to PostgreSQL: jobs, appends that are made together, and the thread that makes them."""
