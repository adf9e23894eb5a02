"""Tests.  A package, so that `tests.kafka` (real Kafka) does not hide kafka-python's own `kafka`."""
