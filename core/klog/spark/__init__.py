"""klog on Spark: the only package that imports PySpark."""
