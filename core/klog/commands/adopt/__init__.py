"""Adopts partitions: deleted, stray, recreated or foreign ones, under the topic id that the cluster has now."""
