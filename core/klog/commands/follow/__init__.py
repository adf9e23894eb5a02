"""A log dir that is the copy of a live cluster's partitions: batches are stored as a leader sends them."""
