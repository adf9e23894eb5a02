"""Tests of `klog.cleaner`: what is cleaned, and that it is what a broker cleans."""
