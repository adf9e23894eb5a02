"""Retention: the limits of a topic, and the segments that a broker's first pass removes."""
