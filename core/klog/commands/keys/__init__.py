"""`klog keys`: whether keys lie in the partitions that producers put them into."""
