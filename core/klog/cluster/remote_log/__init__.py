"""Remote storage as `__remote_log_metadata` has it: which segments of a partition a broker knows, and would serve."""
