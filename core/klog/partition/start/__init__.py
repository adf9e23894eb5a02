"""Plays, step by step, a broker's treatment of a partition's files when it starts.  Kafka: LogLoader."""
