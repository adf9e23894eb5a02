"""`klog audit`: the findings in batch headers, and batches that a producer's fault put into the wrong partition."""
