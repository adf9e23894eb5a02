"""The repair that keeps every intact batch: a partition's survey, and the content of its files afterwards.

`klog recover`, `klog adopt` and `klog remote fetch` share it.
"""
