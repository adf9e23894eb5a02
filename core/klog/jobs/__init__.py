"""Jobs over many data dirs: plain functions from a unit of work to Arrow batches, and the merging of results."""
