"""Transactions and idempotent producers: markers, producer state, and the view of each isolation level."""
