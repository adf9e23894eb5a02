"""`klog timeline`: what happened to a cluster, in one order, as the disks of its brokers tell it."""
