"""Remote storage seen from disk: which segments a partition has there, and whether they are complete.

listing = list_remote(RemoteQuery(["b1/data"], open_tier("tier")))
for row in listing.partitions:
    print(row.topic, row.partition, row.verdict)
"""

from __future__ import annotations

from klog.commands.remote.listing import RemoteListing, list_remote
from klog.commands.remote.partition_listing import PartitionListing, RemoteVerdict, SegmentListing
from klog.commands.remote.sources import RemoteQuery

__all__ = ["PartitionListing", "RemoteListing", "RemoteQuery", "RemoteVerdict", "SegmentListing", "list_remote"]
