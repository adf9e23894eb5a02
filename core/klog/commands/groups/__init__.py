"""`klog groups`: groups, their committed offsets, and the lag of those."""
