"""From a partition and what is wrong with it to a plan: what is kept, what is put right, what is lost."""
