"""Compaction held against Kafka's own cleaner."""
