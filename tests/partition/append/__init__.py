"""Tests of `klog.partition.append`."""
