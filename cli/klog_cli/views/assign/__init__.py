"""Text and JSON of `klog assign`."""
