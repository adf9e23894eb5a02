"""Which brokers a topic's partitions get, and how an existing assignment is spread; functions that read no disk."""
