"""One segment's bytes: batches, records and indexes, and how they are searched, filtered and read past damage."""
