"""The request to predict a start, and the identity of the starting broker."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from klog.commands.doctor.diagnosis import KafkaVersion
from klog.commands.doctor.meta_properties_check import DELETE_DELAY_MS
from klog.tier.tier import Tier


class StartRequest(NamedTuple):
    """The starting broker and its input.  *log_dirs*: `log.dirs` of one broker, in that order.

    *node_id*: the configured one, None: that of the log dirs.  *cluster_id*, *directory_ids*: the cluster's ids, those
    of log dirs in their order, if no metadata log has them.  *metadata_log_dir*: None: the log dir that has the
    metadata log, else the first.  *count_all*: count records even if none can be lost.  *producer_expiration_ms*:
    `producer.id.expiration.ms`, None: the value in the metadata log.  *file*: the content of `server.properties`.
    *has_steps*: find the next steps.  *plain*: paths of partitions known to have no transactions.  *tier*: the objects
    in remote storage, None: they are not looked at.
    """

    log_dirs: Sequence[str]
    version: KafkaVersion = KafkaVersion.V4_3
    node_id: int | None = None
    cluster_id: str | None = None
    directory_ids: Sequence[str] = ()
    metadata_log_dir: str | None = None
    delete_delay_ms: int = DELETE_DELAY_MS
    count_all: bool = False
    producer_expiration_ms: int | None = None
    file: Mapping[str, str] = MappingProxyType({})
    has_steps: bool = True
    plain: Container[str] = ()
    tier: Tier | None = None


class BrokerIdentity(NamedTuple):
    """The starting broker: its node id, and the directory ids of its log dirs by path; None: one without an id.

    *expected*: the cluster's ids for log dirs, if there is no metadata log here.  *delete_delay_ms*: the delay after
    the start before it removes directories that are marked for deletion.  *lacks_log_dirs*: some are offline from the
    beginning.  *leads*: False if it can become neither leader nor follower of partitions.
    """

    node_id: int
    directory_ids: Mapping[str, str | None]
    expected: Mapping[str, str] = {}
    delete_delay_ms: int = DELETE_DELAY_MS
    lacks_log_dirs: bool = False
    leads: bool = True
