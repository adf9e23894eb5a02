"""One log over two tiers: the segments in remote storage and the local ones, read as the files of one directory."""
