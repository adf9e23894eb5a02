"""Tests of `klog.commands.compact`: the cleaned part, and that it is a broker's."""
