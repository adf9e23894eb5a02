"""A read-only Kafka endpoint over a dead broker's disk: `klog serve`."""
