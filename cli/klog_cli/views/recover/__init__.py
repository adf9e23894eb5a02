"""Text and JSON of `klog recover`."""
