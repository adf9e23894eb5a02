"""What fills a disk, why it is still there, and when it goes."""
