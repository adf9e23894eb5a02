"""`klog bytes`."""
