"""`klog timeline`: the history of a cluster in one order, from the disks of its brokers."""
