"""Compaction by key, as a broker's log cleaner does it."""
