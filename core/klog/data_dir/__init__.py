"""The contents of a broker's data directory: log dirs, partitions, replicas."""
