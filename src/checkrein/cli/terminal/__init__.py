"""A program on a terminal of its own inside ours, with one line below it that is ours."""
