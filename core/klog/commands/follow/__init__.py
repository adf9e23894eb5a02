"""A log dir that klog keeps as the copy of a live cluster's partitions: batches come in as a leader sends them."""
