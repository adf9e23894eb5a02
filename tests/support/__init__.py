"""What tests make: logs, damage, a disk that fails."""
