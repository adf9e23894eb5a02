"""Text and JSON of `klog spark`."""
