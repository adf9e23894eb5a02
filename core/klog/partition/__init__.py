"""What happens in one partition: transactions, lookup, fetch, append, start, checks, truncation, retention."""
