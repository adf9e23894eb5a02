"""`klog groups`: groups, what they have committed, and how far that is from the ends of the logs."""
