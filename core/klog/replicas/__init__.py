"""The copies of a partition on several brokers' disks: how they differ, who would lead, and what that would cost."""
