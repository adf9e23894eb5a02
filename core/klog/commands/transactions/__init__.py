"""`klog transactions`: the transactions of producers over all partitions, and the records of coordinators."""
