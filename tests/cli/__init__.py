"""Tests of `klog_cli`: what operators type and see."""
