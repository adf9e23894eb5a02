"""Tests of `klog.commands.adopt`: partitions that come home."""
