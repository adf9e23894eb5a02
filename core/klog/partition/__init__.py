"""One partition: transactions, lookup, fetch, append, start, checks, truncation, retention."""
