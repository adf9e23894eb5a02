"""Real brokers and real clients."""
