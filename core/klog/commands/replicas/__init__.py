"""The metadata logs of several disks: comparison, and plans that bring a quorum or a broker up again."""
