"""Mutants that do what the original does, each with the reason: no test can kill them, and none is counted."""

SAME: dict[tuple[str, str, str], str] = {}
"""By file, what was there and what is there now; all places in a file where that stands."""
