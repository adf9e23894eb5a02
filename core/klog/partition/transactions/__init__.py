"""Transactions and idempotent producers: markers, producer state, and what each isolation level shows."""
