"""What a cluster decides: metadata, coordinators, elections, placement, partitioners."""
