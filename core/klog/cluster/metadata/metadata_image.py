"""The state of a cluster after replaying the metadata log: settings, features, quotas, ACLs, and all the rest.

There is a rule for each type of record that changes it; Kafka: MetadataDelta.replay and the deltas below it.  No secret
of credentials and delegation tokens is kept: salt and key never leave the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from klog.cluster.metadata.cluster_image import ClusterImage, QuorumImage
from klog.cluster.metadata.topics_image import TopicsImage
from klog.formats.internal_topics import MetadataRecord
from klog.formats.structs.schema import Data

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
"""The owner of settings; a broker's have its node id, those of all brokers "".  Kafka: ConfigResource.Type."""

_KRAFT_VERSION: Final = "kraft.version"
_ACL_RESOURCES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_ACL_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_ACL_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_ACL_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

METADATA_VERSIONS: Final = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1"),
    *("3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0"),
    *("3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
    "4.4-IV0",
)
"""The names of the levels of `metadata.version`, from 1 on.  Kafka: MetadataVersion."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types and names of the entity of a quota, by type: user, client-id, ip; None names the default of that type."""


class AccessControlEntry(NamedTuple):
    """An ACL, with Kafka's names: TOPIC, LITERAL, READ, ALLOW."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


def _named(names: tuple[str, ...], code: int) -> str:
    return names[code] if 0 <= code < len(names) else f"UNKNOWN({code})"


@dataclass
class SettingsImage:
    """The settings of the cluster.

    *configs*: by resource type and name.  *features*: finalized levels.  *quotas*: by entity, then key.  *scram*: the
    iterations of each user and mechanism.  *acls*, *tokens*: by id.  *next_producer_id*: None before the first block.
    """

    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    scram: dict[tuple[str, str], int] = field(default_factory=dict)
    acls: dict[str, AccessControlEntry] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    next_producer_id: int | None = None

    @property
    def metadata_version(self) -> str | None:
        """The name of the finalized `metadata.version`; None without one, or if klog does not know its level."""
        level = self.features.get("metadata.version", 0)
        return METADATA_VERSIONS[level - 1] if 0 < level <= len(METADATA_VERSIONS) else None

    def set_config(self, data: Data) -> None:
        """Null takes a setting back."""
        resource = (data["resourceType"], data["resourceName"])
        if data["value"] is not None:
            self.configs.setdefault(resource, {})[data["name"]] = data["value"]
        elif resource in self.configs:
            self.configs[resource].pop(data["name"], None)
            if not self.configs[resource]:
                del self.configs[resource]

    def set_feature(self, data: Data) -> None:
        """Level 0 takes a feature back.  Kafka: FeaturesDelta, which takes kraft.version from control records only."""
        if data["featureLevel"] == 0:
            self.features.pop(data["name"], None)
        elif data["name"] != _KRAFT_VERSION:
            self.features[data["name"]] = data["featureLevel"]

    def set_quota(self, data: Data) -> None:
        """Set a quota, or take it back."""
        entity = tuple(sorted((one["entityType"], one["entityName"]) for one in data["entity"]))
        if not data["remove"]:
            self.quotas.setdefault(entity, {})[data["key"]] = data["value"]
        elif entity in self.quotas:
            self.quotas[entity].pop(data["key"], None)
            if not self.quotas[entity]:
                del self.quotas[entity]

    def set_producer_ids(self, data: Data) -> None:
        """Set the first producer id that no broker has been given."""
        self.next_producer_id = data["nextProducerId"]

    def set_scram(self, data: Data) -> None:
        """Set a user's credential of a mechanism."""
        self.scram[_credential(data)] = data["iterations"]

    def remove_scram(self, data: Data) -> str | None:
        """Remove a user's credential."""
        if self.scram.pop(_credential(data), None) is None:
            return f"user {data['name']} has no credential of {_credential(data)[1]}"
        return None

    def set_acl(self, data: Data) -> None:
        """Set the ACL of an id."""
        self.acls[data["id"]] = AccessControlEntry(
            _named(_ACL_RESOURCES, data["resourceType"]),
            data["resourceName"],
            _named(_ACL_PATTERNS, data["patternType"]),
            data["principal"],
            data["host"],
            _named(_ACL_OPERATIONS, data["operation"]),
            _named(_ACL_PERMISSIONS, data["permissionType"]),
        )

    def remove_acl(self, data: Data) -> str | None:
        """Remove an ACL."""
        return None if self.acls.pop(data["id"], None) else f"no ACL has the id {data['id']}"


def _credential(data: Data) -> tuple[str, str]:
    mechanism = data["mechanism"]
    return data["name"], SCRAM_MECHANISMS.get(mechanism, f"UNKNOWN({mechanism})")


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
    "FENCE_BROKER_RECORD": lambda state, data: state.cluster.fence(data, True),
    "UNFENCE_BROKER_RECORD": lambda state, data: state.cluster.fence(data, False),
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "DELEGATION_TOKEN_RECORD": lambda state, data: state.settings.tokens.add(data["tokenId"]),
    "USER_SCRAM_CREDENTIAL_RECORD": lambda state, data: state.settings.set_scram(data),
    "FEATURE_LEVEL_RECORD": lambda state, data: state.settings.set_feature(data),
    "CLIENT_QUOTA_RECORD": lambda state, data: state.settings.set_quota(data),
    "PRODUCER_IDS_RECORD": lambda state, data: state.settings.set_producer_ids(data),
    "BROKER_REGISTRATION_CHANGE_RECORD": lambda state, data: state.cluster.change_registration(data),
    "ACCESS_CONTROL_ENTRY_RECORD": lambda state, data: state.settings.set_acl(data),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": lambda state, data: state.settings.remove_acl(data),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": lambda state, data: state.settings.remove_scram(data),
    "REMOVE_DELEGATION_TOKEN_RECORD": lambda state, data: state.settings.tokens.discard(data["tokenId"]),
    "REGISTER_CONTROLLER_RECORD": lambda state, data: state.cluster.register_controller(data),
    "CLEAR_ELR_RECORD": lambda state, data: state.topics.clear_elr(data),
}
