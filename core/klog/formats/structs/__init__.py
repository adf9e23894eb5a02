"""Structs that Kafka declares by schemas: the schemas themselves, and what reads, writes and prints by them."""
