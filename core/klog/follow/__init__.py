"""`klog follow`: an incremental, byte-exact copy of a live cluster's partitions."""
