"""Text and JSON of `klog lookup`."""
