"""klog as a client of a Kafka cluster: connections, security, and the requests that read."""
