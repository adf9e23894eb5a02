"""From the content that a partition is to have to a draft of changes: shared by recover, truncate and compact."""
