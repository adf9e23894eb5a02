"""Tests of `klog.commands.adopt`: adopted partitions."""
