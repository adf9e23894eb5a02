"""Tests of klog.space."""
