"""Text and JSON of `klog replicas`."""
