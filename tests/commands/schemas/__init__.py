"""`klog schemas`."""
