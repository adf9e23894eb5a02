"""Tests of `klog.append`."""
