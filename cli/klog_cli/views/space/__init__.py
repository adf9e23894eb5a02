"""Text and JSON of `klog space`."""
