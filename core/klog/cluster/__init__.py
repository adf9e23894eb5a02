"""Decisions of a cluster: metadata, coordinators, elections, placement, partitioners."""
