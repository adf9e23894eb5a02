"""Second opinions: Kafka's tools, and plain slow code that shares nothing with klog."""
