"""Finds the batch of an offset or a time, as a broker does, with the trail of the search.

Segment by its base offset, entry by the index, batch by a walk along the headers, record inside the batch.  The log
decides: if an index is missing or wrong, the trail reports that, and the answer is still right.
"""

from klog.partition.lookup.lookup import Lookup
from klog.partition.lookup.lookup_trail import LookupOutcome, Trail, TrailDetail

__all__ = ["Lookup", "LookupOutcome", "Trail", "TrailDetail"]
