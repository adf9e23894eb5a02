"""The project's benchmark: klog beside its peers, one run, medians.  Run ``make bench``; read bench/README.md."""
