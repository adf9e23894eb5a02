"""The state of a cluster after replaying the metadata log.

There is a rule for each type of record that changes it; Kafka: MetadataDelta.replay and the deltas below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from klog.cluster.metadata.cluster_image import ClusterImage, QuorumImage
from klog.cluster.metadata.settings_image import TOPIC_RESOURCE, SettingsImage
from klog.cluster.metadata.topics_image import TopicsImage
from klog.formats.internal_topics import MetadataRecord
from klog.formats.structs.schema import Data


@dataclass
class MetadataImage:
    """The state so far.  *unknown*: the number of records of each type that klog does not know."""

    topics: TopicsImage = field(default_factory=TopicsImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    settings: SettingsImage = field(default_factory=SettingsImage)
    quorum: QuorumImage = field(default_factory=QuorumImage)
    unknown: dict[int, int] = field(default_factory=dict)

    def apply(self, record: MetadataRecord) -> str | None:
        """Take a record in; return why it does not fit, and changes nothing, or None."""
        rule = _RULES.get(record.name)
        return None if rule is None else rule(self, record.data)

    def forget_topic(self, topic_id: str) -> None:
        """Remove a topic with its partitions and settings."""
        self.settings.configs.pop((TOPIC_RESOURCE, self.topics.remove(topic_id)), None)


def _topic(state: MetadataImage, data: Data) -> None:
    name, topic_id = data["name"], data["topicId"]
    for before in (state.topics.ids.get(name), topic_id):
        if before in state.topics.names:
            state.forget_topic(before)  # the record of its removal could not be read
    state.topics.add(name, topic_id)


def _remove_topic(state: MetadataImage, data: Data) -> str | None:
    if data["topicId"] not in state.topics.names:
        return state.topics.no_topic(data)
    state.forget_topic(data["topicId"])
    return None


_Rule: TypeAlias = Callable[[MetadataImage, Data], "str | None"]
_RULES: Final[Mapping[str, _Rule]] = {
    "REGISTER_BROKER_RECORD": lambda state, data: state.cluster.register_broker(data),
    "UNREGISTER_BROKER_RECORD": lambda state, data: state.cluster.unregister_broker(data),
    "TOPIC_RECORD": _topic,
    "PARTITION_RECORD": lambda state, data: state.topics.put_partition(data),
    "CONFIG_RECORD": lambda state, data: state.settings.set_config(data),
    "PARTITION_CHANGE_RECORD": lambda state, data: state.topics.change_partition(data),
    "FENCE_BROKER_RECORD": lambda state, data: state.cluster.fence(data),
    "UNFENCE_BROKER_RECORD": lambda state, data: state.cluster.unfence(data),
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "DELEGATION_TOKEN_RECORD": lambda state, data: state.settings.set_token(data),
    "USER_SCRAM_CREDENTIAL_RECORD": lambda state, data: state.settings.set_scram(data),
    "FEATURE_LEVEL_RECORD": lambda state, data: state.settings.set_feature(data),
    "CLIENT_QUOTA_RECORD": lambda state, data: state.settings.set_quota(data),
    "PRODUCER_IDS_RECORD": lambda state, data: state.settings.set_producer_ids(data),
    "BROKER_REGISTRATION_CHANGE_RECORD": lambda state, data: state.cluster.change_registration(data),
    "ACCESS_CONTROL_ENTRY_RECORD": lambda state, data: state.settings.set_acl(data),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": lambda state, data: state.settings.remove_acl(data),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": lambda state, data: state.settings.remove_scram(data),
    "REMOVE_DELEGATION_TOKEN_RECORD": lambda state, data: state.settings.remove_token(data),
    "REGISTER_CONTROLLER_RECORD": lambda state, data: state.cluster.register_controller(data),
    "CLEAR_ELR_RECORD": lambda state, data: state.topics.clear_elr(data),
}
