"""Kafka's protocol: requests and responses in both directions, for `klog serve` and for the client."""
