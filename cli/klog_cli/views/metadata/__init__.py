"""Text and JSON of `klog metadata`."""
