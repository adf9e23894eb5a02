"""Jobs over many data dirs: plain functions from a unit of work to Arrow batches, and what makes one result of them."""
