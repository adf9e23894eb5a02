"""Tests of `klog.commands.dump`: what is read, in what order, and how it is shown."""
