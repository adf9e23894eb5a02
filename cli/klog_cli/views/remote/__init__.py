"""The output of `klog remote`."""
