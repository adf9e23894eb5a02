"""The groups of a cluster and their committed offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from klog.commands.follow.client.broker_connection import refused
from klog.commands.follow.client.client_failures import RefusedRequestError
from klog.commands.follow.client.cluster import Cluster
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data

_SEVERAL: Final = 100
"""How many groups one request names."""
_KEYS_AT_ONCE: Final = 4
"""The version of FindCoordinator that takes several groups."""
_GROUPS_AT_ONCE: Final = 8
"""The version of OffsetFetch that does."""
_SHARE: Final = "share"
_GONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)


class CommittedOffset(NamedTuple):
    """The committed offset of a group for a partition.  *leader_epoch* -1: none was committed."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


def committed_offsets(cluster: Cluster, known: Collection[str] = ()) -> dict[str, tuple[CommittedOffset, ...] | None]:
    """Return the committed offsets of each group of *cluster*, by its name; call `Cluster.topics` before.

    Share groups commit no offsets and are left out, as are groups without any.  A broker lists only the groups that the
    caller may see, without an error: each of *known* that is not listed is therefore requested by its name, and has
    None if it may not be seen.  Raises the errors of BrokerConnection; RefusedRequestError above all while a
    coordinator moves: try again later.
    """
    names: dict[str, None] = {}
    for node in cluster.nodes():
        answer = cluster.at(node).request("ListGroups", {})
        if answer["errorCode"]:
            raise refused(cluster.at(node).name, "ListGroups", answer["errorCode"])
        shared = (_SHARE, _SHARE.capitalize())
        names |= {
            one["groupId"]: None
            for one in answer["groups"]
            if one["groupType"].lower() != _SHARE and one["protocolType"] not in shared
        }
    found: dict[str, tuple[CommittedOffset, ...] | None] = {}
    for coordinator, groups in _coordinators(cluster, sorted(names)).items():
        found |= {name: offsets for name, offsets in _fetched(cluster, coordinator, groups) if offsets}
    for name in sorted({*known} - {*names}):
        try:
            for coordinator in _coordinators(cluster, [name]):
                found |= {name: offsets for name, offsets in _fetched(cluster, coordinator, [name]) if offsets}
        except RefusedRequestError as error:
            if error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise
            found[name] = None
    return found


def _coordinators(cluster: Cluster, names: Sequence[str]) -> dict[int, list[str]]:
    """Return the groups by the node that keeps them."""
    found: dict[int, list[str]] = {}
    version = cluster.any_version("FindCoordinator") if names else 0
    for start in range(0, len(names), step := _SEVERAL if version >= _KEYS_AT_ONCE else 1):
        some = names[start : start + step]
        answer = cluster.ask_any("FindCoordinator", {"key": some[0], "keyType": 0, "coordinatorKeys": some})
        for one in answer["coordinators"] or [answer | {"key": some[0]}]:
            if one["errorCode"]:
                raise refused("FindCoordinator", f"group {one['key']}", one["errorCode"])
            if one["key"] in some:
                found.setdefault(one["nodeId"], []).append(one["key"])
    return found


def _fetched(cluster: Cluster, node: int, names: Sequence[str]) -> Iterator[tuple[str, tuple[CommittedOffset, ...]]]:
    connection = cluster.at(node)
    several = connection.version("OffsetFetch") >= _GROUPS_AT_ONCE
    for start in range(0, len(names), step := _SEVERAL if several else 1):
        some = names[start : start + step]
        groups = [{"groupId": name, "topics": None} for name in some]
        answer = connection.request("OffsetFetch", {"groupId": some[0], "topics": None, "groups": groups})
        for one in answer["groups"] if several else [answer | {"groupId": some[0]}]:
            if one["errorCode"] and one["errorCode"] not in _GONE:
                raise refused(connection.name, f"OffsetFetch of group {one['groupId']}", one["errorCode"])
            if one["groupId"] in some:
                yield one["groupId"], tuple(_committed(one))


def _committed(group: Data) -> Iterator[CommittedOffset]:
    for topic in group["topics"]:
        for one in topic["partitions"]:
            if not one["errorCode"] and one["committedOffset"] >= 0:
                epoch, metadata = one["committedLeaderEpoch"], one["metadata"] or ""
                yield CommittedOffset(topic["name"], one["partitionIndex"], one["committedOffset"], epoch, metadata)
