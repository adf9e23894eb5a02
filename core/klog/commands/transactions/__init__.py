"""`klog transactions`: what producers wrote between their markers, over all partitions, and what coordinators know."""
