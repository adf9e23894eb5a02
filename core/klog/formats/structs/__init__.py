"""Structs that Kafka declares with schemas: the schemas, and their readers, writers and printers."""
