"""Records as people read them: the last ones of each partition, and those that a running broker appends."""
