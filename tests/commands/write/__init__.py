"""Tests of `klog.commands.write`: logs that klog wrote, against those that brokers wrote, and real brokers on them."""
