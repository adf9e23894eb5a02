"""From an offset or a time to the batch, as a broker finds it, with the trail of the search.

Segment by its base offset, entry by the index, batch by a walk along the headers, record inside the batch.  The log
answers: where an index is missing or wrong, the trail says so and the answer is right all the same.
"""

from klog.partition.lookup.lookup import Lookup
from klog.partition.lookup.trail import LookupOutcome, Trail, TrailDetail

__all__ = ["Lookup", "LookupOutcome", "Trail", "TrailDetail"]
