"""Attaches what is in remote storage to a cluster: records, an empty local log, and the topic if it is not there."""
