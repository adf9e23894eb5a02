"""`klog write`: records, or batches of another log, into partitions."""
