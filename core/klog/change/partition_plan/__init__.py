"""From the desired content of a partition to a draft of changes; shared by recover, truncate and compact."""
