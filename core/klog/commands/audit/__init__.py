"""`klog audit`: what batch headers tell, and which batches a producer's fault put into the wrong partition."""
