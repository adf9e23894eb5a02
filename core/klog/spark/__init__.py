"""klog on Spark: the only room that imports PySpark."""
