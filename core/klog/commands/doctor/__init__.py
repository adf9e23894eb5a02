"""What a broker does with its log dirs at its next start, and the way to one that loses nothing: `klog doctor`."""
