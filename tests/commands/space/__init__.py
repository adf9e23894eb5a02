"""Tests of klog.commands.space."""
