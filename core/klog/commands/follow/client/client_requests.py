"""The requests that klog sends to a cluster: all of them, each with its versions and its reason.

None of them changes anything: no Produce, no commit, no JoinGroup, no creation of a topic by a request for its
metadata.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class RequestVersions(NamedTuple):
    """The versions of one request that klog uses: the highest that the broker also has.  *why*: its purpose."""

    lowest: int
    highest: int
    why: str


REQUESTS: Final = {
    "ApiVersions": RequestVersions(0, 3, "which requests the broker has; the first one on a connection"),
    "SaslHandshake": RequestVersions(1, 1, "the mechanism"),
    "SaslAuthenticate": RequestVersions(0, 2, "name and password, or proofs; again before the session ends"),
    "Metadata": RequestVersions(10, 13, "topics with their ids, partitions, leaders, leader epochs; makes no topic"),
    "ListOffsets": RequestVersions(4, 11, "log start and high watermark"),
    "Fetch": RequestVersions(12, 18, "batches, as a consumer without a group (replica -1)"),
    "OffsetForLeaderEpoch": RequestVersions(3, 4, "where an epoch ended"),
    "DescribeConfigs": RequestVersions(1, 4, "what is set on topics"),
    "ListGroups": RequestVersions(0, 5, "names of groups"),
    "FindCoordinator": RequestVersions(1, 6, "the broker that keeps a group"),
    "OffsetFetch": RequestVersions(5, 9, "what a group has committed"),
}
"""The requests by name.  Fetch below 12 does not report diverging histories, Metadata below 10 has no topic ids."""
