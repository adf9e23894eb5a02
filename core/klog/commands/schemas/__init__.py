"""`klog schemas`: the schemas of a registry, as its topic has them on disk."""
