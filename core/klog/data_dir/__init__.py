"""What lies in a broker's data directory: log dirs, partitions, their replicas."""
