"""Tests of `klog.compact`: what is cleaned, and that it is what a broker cleans."""
