"""What must stay as it is: journals, stores, and every surface that others depend on, recorded and compared.

`python -m tests.golden.record` records everything again, except the stores; see CONTRIBUTING.md for when that is right.
"""
