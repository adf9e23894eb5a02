"""A broker's next start on its log dirs, and the steps to a start that loses nothing: `klog doctor`."""
