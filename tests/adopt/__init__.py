"""Tests of `klog.adopt`: partitions that come home."""
