"""Tools of tests: logs, damage, a disk that fails."""
