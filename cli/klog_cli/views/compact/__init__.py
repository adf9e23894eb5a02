"""Text and JSON of `klog compact`."""
