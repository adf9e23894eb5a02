"""The records of coordinators in their topics: consumer groups, share groups, transactions; plain data, replayed."""
