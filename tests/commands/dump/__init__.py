"""Tests of `klog.commands.dump`: the input, its order, and its display."""
