"""Appends batches to partitions, which are left as a broker leaves them."""
