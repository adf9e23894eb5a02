"""What coordinators wrote into their topics: consumer groups, share groups, transactions; plain data, replayed."""
