"""What a broker does with a partition's files when it starts, played step by step.  Kafka: LogLoader."""
