"""The content of a disk, the reason why it is still there, and the time of its removal."""
