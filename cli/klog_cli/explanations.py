"""Sentences about ids that no table of the core explains: events, reasons of segments, outcomes of partitions.

The pages of docs/ have the same sentences, which a test compares.
"""

from __future__ import annotations

from typing import Final

# ruff: noqa: E501
EVENTS: Final = {
    "broker-registered": ("a broker started, or registered again; `epoch`: its broker epoch", "the record's"),
    "broker-fenced": ("a broker lost or got its right to lead; a broker was removed from the cluster", "the record's"),
    "broker-unfenced": (
        "a broker lost or got its right to lead; a broker was removed from the cluster",
        "the record's",
    ),
    "broker-unregistered": (
        "a broker lost or got its right to lead; a broker was removed from the cluster",
        "the record's",
    ),
    "topic-created": ("with the number of partitions at that moment", "the record's"),
    "topic-deleted": ("with the number of partitions at that moment", "the record's"),
    "partition-changed": (
        "leader, replicas, ISR or ELR, each with its old and new value, with the reason if nearby records show it; a partition that was added later; the voters of the quorum",
        "the record's",
    ),
    "config-changed": (
        "a setting of a topic, a broker, all brokers, a group, or a feature, with the value before; passwords are not shown",
        "the record's",
    ),
    "tiering-enabled": ("`remote.storage.enable` of a topic was set to true, or to false after that", "the record's"),
    "tiering-disabled": ("`remote.storage.enable` of a topic was set to true, or to false after that", "the record's"),
    "epoch": ("a leader epoch begins in a log; in `__cluster_metadata`, a node leads the quorum", "its first batch's"),
    "txn-begin": ("a transaction's first partition was added", "the coordinator's; otherwise its first batch's"),
    "txn-commit": (
        "the coordinator decided its end. The markers follow within moments",
        "the coordinator's; otherwise the marker's",
    ),
    "txn-abort": (
        "the coordinator decided its end. The markers follow within moments",
        "the coordinator's; otherwise the marker's",
    ),
    "txn-fenced": (
        "the coordinator aborted it for a new producer of the same transactional id. After a timeout the event is a `txn-abort` that names the timeout. Clients of transactions v2 (Java 4.x) leave the same records when they abort and when they are fenced: both are `txn-abort`",
        "the coordinator's",
    ),
    "txn-open": ("a transaction has no end so far", "that of its begin"),
    "commit": (
        "a group committed offsets. Commits of a group within one second of the first are one event, with their number; those of a transaction count at its commit",
        "the record's; the marker's",
    ),
    "rebalance": ("a group has a new generation or epoch; the event has its members", "the record's"),
    "group-deleted": (
        "the metadata of a group was removed: deleted by a tool, or expired; the records do not show which",
        "the record's",
    ),
    "segment-tiered": (
        "a segment is in remote storage, or its objects were deleted there; from `__remote_log_metadata`",
        "the record's",
    ),
    "segment-deleted-remotely": (
        "a segment is in remote storage, or its objects were deleted there; from `__remote_log_metadata`",
        "the record's",
    ),
    "copy-failed": (
        "a copy of a segment to remote storage did not end: the leader took it back, or began it again under another id",
        "that of the record which shows it",
    ),
    "roll": ("a segment begins", "its first batch's"),
    "log-start": (
        "earlier records were removed, by DeleteRecords or retention",
        'that of the epoch file, which a broker updates at once; otherwise "by then", that of the checkpoint',
    ),
    "compacted": ("the log cleaner has cleaned up to this offset", 'that of the cleaner\'s checkpoint, "by then"'),
    "producer": (
        "an idempotent or transactional producer writes its first batch in a partition, or continues with another epoch",
        "the batch's",
    ),
    "first-record": ("the beginning and the end of a log", "the first batch's begin, the last one's end"),
    "last-record": ("the beginning and the end of a log", "the first batch's begin, the last one's end"),
    "silence": ("nothing was written for a long time", "its begin; `offset` is that of the batch that ended it"),
    "damage": ("damage of a log that `klog verify` reports, with the same id", "that of the batch before it"),
}
"""Kinds of `klog timeline`: the event, and where its time is from."""
SEGMENTS: Final = {
    "active": "the last segment: the broker rolls and deletes it only when the complete log is due; `due` is that date",
    "retention-time": "younger than `retention.ms`; `due` is its largest timestamp plus `retention.ms`, and `because` names an earlier segment that is deleted later",
    "retention-size": "within `retention.bytes`",
    "retention-due": "a broker deletes it at its next check (`log.retention.check.interval.ms`, 5 minutes)",
    "behind": "due, but an earlier segment is not: brokers delete from the front and stop at the first segment that stays. `because` names that segment, `due` is its date",
    "future-timestamp": "one of its records has a timestamp in the future; a broker deletes the segment and all later ones `retention.ms` after that time",
    "unlimited": "no limit by time or size",
    "compacted": "clean part of a compacted log",
    "dirty": "the cleaner cleans it in its next run, or waits for the dirty ratio: `because` has the figures",
    "uncleanable": "the cleaner skips it because of `min.compaction.lag.ms`, the high watermark or damage; `because` has the reason",
    "open-transaction": "the cleaner stops before the first open transaction, which `because` names",
    "below-log-start": "all of its records were deleted (`kafka-delete-records`): a broker deletes it at its next check",
    "deleting": "in a directory that is being deleted, was set aside, or is a copy that is moving to this log dir",
    "stray": "in a directory that is being deleted, was set aside, or is a copy that is moving to this log dir",
    "future": "in a directory that is being deleted, was set aside, or is a copy that is moving to this log dir",
    "leftover": "left by an unfinished operation: `.deleted`, `.cleaned`, `.swap`, an index without its log",
    "metadata": "the cluster's metadata log",
    "remote": "of a topic with remote storage: once it has been copied, `local.retention.ms` and `local.retention.bytes` decide",
}
"""Reasons of `klog space` why bytes are still there."""
OUTCOMES: Final = {
    "serves": "loads it as this partition",
    "empties": "loads it and deletes all of its segments",
    "strays": "renames it to `….<32 hex>-stray`, never serves it, and never deletes it. `becomes: empty`: the broker creates the partition again, empty",
    "creates": "has no directory for it, and creates an empty log, which a follower fills from its leader",
    "promotes": "turns a `-future` directory into the partition; a current directory beside it is then `replaced`",
    "replaced": "renames it to `-delete`, and removes it",
    "deletes": "removes a `-delete` directory after the delay, even if it is the only copy",
    "keeps": "loads a `-stray` directory and keeps it aside",
    "moves": "continues to copy it from the current directory",
    "leaderless": "loads it, or creates an empty log if there is none; the partition may stay without a leader until another start",
    "offline": "does not serve it: its log dir goes offline",
    "unreached": "stops before it reaches this directory",
    "refuses": "stops because of it",
    "forgets-remote": "begins with an empty log, and as its leader deletes the partition's segments in remote storage",
    "hides-remote": "loads it, and moves its log start up, or begins an empty log: older records stay in remote storage, and are not served again",
}
"""Outcomes of a partition at the start of a broker, as `klog doctor` has them."""
SCHEMAS: Final = {
    "id-missing": ("damage", "a record names an id, or a GUID, that no record of `_schemas` has"),
    "id-claimed-twice": (
        "damage",
        "two different schemas have one id in one context: two leaders handed it out; the count says which one fits",
    ),
    "reference-missing": (
        "damage; warning when no record uses the schema",
        "a schema refers to a version that is not there",
    ),
    "schema-broken": (
        "damage; warning when no record uses the schema",
        "the text of a schema cannot be read",
    ),
    "undecodable": ("damage", "a key or value does not decode by its schema"),
    "hard-deleted-in-use": (
        "damage",
        "the registry no longer knows the id, and only the record that compaction will remove has the schema",
    ),
    "deleted-in-use": ("warning", "the version is soft-deleted"),
    "trailing-bytes": ("warning", "bytes are left over: another schema may have written the value"),
    "invalid-value": (
        "warning",
        "with `--validate`: a value decodes, and contradicts its JSON Schema; the first place and rule are named",
    ),
    "not-validated": (
        "warning",
        "with `--validate`: a schema validates no value: it takes too long, or refers to a schema that is not there",
    ),
    "unframed": (
        "note; warning if the side also has framed records",
        "keys or values name no schema; `glue`, `json`, `text` or `binary` by their first bytes",
    ),
    "bad-record": ("warning", "no registry can read a record of `_schemas`"),
    "unused": ("note", "no record and no schema in use needs a live version; with `--sample`: none of the sample"),
    "subject-foreign": ("note", "all subjects of the id belong to other topics by their names"),
    "no-schema-subject": ("note", "`TOPIC-value` exists and no value is framed, or the reverse"),
}
"""Findings of `klog schemas check`: how bad each is, and when it is found."""
