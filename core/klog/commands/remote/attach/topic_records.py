"""The records that give the cluster a topic with the id of its objects, or a partition a higher leader epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.metadata.metadata_image import TOPIC_RESOURCE
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_log
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.remote.attach.target import TargetBroker
from klog.commands.replicas.disks import BrokerDisk
from klog.commands.replicas.metadata_changes import (
    NewBatches,
    end_of_open_transaction,
    registration_record,
    unused_producer_ids,
)
from klog.commands.replicas.metadata_log_plan import LogPlan, future_log, intact_log, metadata_copies
from klog.data_dir.disk.disk_changes import Disk
from klog.formats.internal_topics import MetadataRecord, new_metadata_record


class NewTopic(NamedTuple):
    """A topic to make.  *epochs*: the leader epoch of each partition.  *removes*: the id of a topic of its name."""

    name: str
    topic_id: str
    epochs: Mapping[int, int]
    settings: Mapping[str, str]
    removes: str | None = None


class ClusterChange(NamedTuple):
    """The changes of the metadata log.

    *raised*: by topic id and number, the leader epoch of an existing partition.  *highest_producer*: the greatest
    producer id that stays known, None if none does.
    """

    topics: Sequence[NewTopic]
    raised: Mapping[tuple[str, int], int]
    highest_producer: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written."""
        return not self.topics and not self.raised


def metadata_drafts(
    target: TargetBroker, change: ClusterChange, stagings: Sequence[Staging], now_ms: int, disk: Disk
) -> list[Draft]:
    """Return the changes of the metadata log, once the result was read back.

    Raises KlogError for a damaged metadata log, OSError (staging).
    """
    if change.is_empty:
        return []
    disks = [BrokerDisk(target.node_id, one) for one in target.log_dirs]
    base = metadata_copies(disks)[0]
    intact = intact_log(base)
    new = NewBatches(intact.end, base.latest_epoch + 1, now_ms)
    state, directory = target.cluster, target.log_dirs[0].directory_id
    new.add_records(end_of_open_transaction(state))
    wanted = {topic.topic_id: dict(_registrations(topic, target.node_id, directory)) for topic in change.topics}
    new.add_records(_records(state, change, wanted))
    plan = LogPlan(disks, stagings, now_ms, is_base_chosen=False)
    with future_log(base, intact, new, disk) as log:
        after = read_log(log)
        if any(dict(after.partitions.get(topic_id, {})) != found for topic_id, found in wanted.items()):
            raise KlogError("the batches that were read back are wrong: nothing is planned; please report this")
        plan.write(target.metadata_dir, base, base, intact, log)
    return plan.drafts


def _registrations(topic: NewTopic, node_id: int, directory: str | None) -> Iterator[tuple[int, PartitionRegistration]]:
    for number, epoch in topic.epochs.items():
        directories = (directory,) if directory is not None else ()
        yield number, PartitionRegistration((node_id,), (node_id,), node_id, epoch, 0, directories=directories)


def _records(
    state: ClusterMetadata, change: ClusterChange, wanted: Mapping[str, Mapping[int, PartitionRegistration]]
) -> Iterator[MetadataRecord]:
    for topic in change.topics:
        if topic.removes is not None:
            yield new_metadata_record("RemoveTopicRecord", 0, {"topicId": topic.removes})
        yield new_metadata_record("TopicRecord", 0, {"name": topic.name, "topicId": topic.topic_id})
        for number, registration in wanted[topic.topic_id].items():
            yield registration_record(state, (topic.topic_id, number), registration)
        yield from _configs(topic.name, topic.settings.items())
    for key, epoch in change.raised.items():
        known = state.partitions[key[0]][key[1]]
        after = known._replace(leader_epoch=epoch, partition_epoch=known.partition_epoch + 1)
        yield registration_record(state, key, after)
    highest, following = change.highest_producer, state.state.settings.next_producer_id or 0
    if highest is not None and highest >= following:
        yield unused_producer_ids(highest)


def _configs(topic: str, settings: Iterable[tuple[str, str]]) -> Iterator[MetadataRecord]:
    for name, value in sorted(settings):
        data = {"resourceType": TOPIC_RESOURCE, "resourceName": topic, "name": name, "value": value}
        yield new_metadata_record("ConfigRecord", 0, data)
