"""The command line: reads arguments, calls klog, shows results.  No logic of its own."""
