"""Spark looks for data sources in modules of this name: with it, `format("kafka-log")` needs no import."""

from klog.spark.data_source import KafkaLog as DefaultSource

__all__ = ["DefaultSource"]
