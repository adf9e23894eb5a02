"""What survives in a damaged log: which batches are kept, where they go, and what is dropped."""
