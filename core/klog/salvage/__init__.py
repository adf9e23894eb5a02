"""What survives in a damaged log: which batches can be kept, where they go, and what is dropped."""
