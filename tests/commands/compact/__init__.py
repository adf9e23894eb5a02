"""Tests of `klog.commands.compact`: what is cleaned, and that it is what a broker cleans."""
