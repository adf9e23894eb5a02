"""Tests of `klog.formats`: each layout alone, without files."""
