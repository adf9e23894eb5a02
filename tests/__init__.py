"""Tests.  A package, so that `tests.brokers.kafka` (real Kafka) does not hide kafka-python's own `kafka`."""
