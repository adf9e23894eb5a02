"""The steps of the operator after partitions were attached: the check, and the lines of the broker's file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from shlex import join

from klog.commands.remote.attach.result import AttachedPartition
from klog.commands.remote.attach.target import TargetBroker
from klog.tier.local_layout import LocalLayout
from klog.tier.tier import Tier, is_url

_LOCAL = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_USUAL_COUNT = 50
"""Kafka: TopicBasedRemoteLogMetadataManagerConfig.DEFAULT_REMOTE_LOG_METADATA_TOPIC_PARTITIONS."""
_AIVEN = "io.aiven.kafka.tieredstorage.RemoteStorageManager"


def next_steps(tier: Tier, target: TargetBroker, attached: Sequence[AttachedPartition]) -> list[str]:
    """Return the steps, in their order; none if nothing was attached."""
    return list(_steps(tier, target)) if any(not one.is_done for one in attached) else []


def _steps(tier: Tier, target: TargetBroker) -> Iterator[str]:
    yield join(["klog", "remote", "verify", *(one.path for one in target.log_dirs), "--remote", tier.uri])
    yield "in the broker's file: remote.log.storage.system.enable=true"
    if target.count != _USUAL_COUNT:  # a broker with another number stops
        yield f"in the broker's file: rlmm.config.remote.log.metadata.topic.num.partitions={target.count}"
    is_local = tier.layout is not None and tier.layout.name == LocalLayout.name
    yield f"in the broker's file: remote.log.storage.manager.class.name={_LOCAL if is_local else _AIVEN}"
    place = tier.uri if is_url(tier.uri) else os.path.abspath(tier.uri)
    if is_local:
        yield f"in the broker's file: rsm.config.dir={place.removesuffix('/kafka-tiered-storage')}"
    else:
        yield f"in the broker's file: the rsm.config.… lines of the lost cluster, with its key.prefix, and {place}"
    yield "the broker deletes segments beyond the topic's retention.ms and retention.bytes within half a minute"
