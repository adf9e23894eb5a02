"""Objects of JSON that `tools.json_fields` combines: plans and changes, the cluster, the disk."""

from __future__ import annotations

from typing import Any

Declared = Any

INT, TEXT, BOOL = "integer", "string", "boolean"
INT_OR_NULL, TEXT_OR_NULL = "integer|null", "string|null"
WHERE: Declared = {"topic": TEXT, "partition": INT}
MAYBE_WHERE: Declared = {"topic": TEXT_OR_NULL, "partition": INT_OR_NULL}
POINT: Declared = {"offset": INT, "epoch": INT_OR_NULL}
SETTINGS: Declared = {"*": {"value": ("integer|number|boolean|string|null", [TEXT]), "origin": TEXT, "name": TEXT}}
FINDING: Declared = {
    **{"id": TEXT, "severity": "=note|warning|damage", **MAYBE_WHERE, "file": TEXT_OR_NULL},
    **{"position": INT_OR_NULL, "offset": INT_OR_NULL, "message": TEXT, "broker": TEXT_OR_NULL, "fix": TEXT_OR_NULL},
    **{"topic_id?": TEXT_OR_NULL, "cluster_id?": TEXT_OR_NULL, "count?": INT},
}

BYTE_FIELD: Declared = {
    **{"position": INT, "size": INT, "hex": TEXT, "name": TEXT, "meaning": TEXT, "part": TEXT, "text?": TEXT},
    **{"value": ("integer|number|boolean|string|null", {"base64": TEXT}), "left_out?": INT, "problem?": TEXT},
}
BYTE_FIELDS: Declared = [{**BYTE_FIELD, "inside?": {"size": INT, "fields": [BYTE_FIELD]}}]

# plans

AMOUNT: Declared = {"records": INT_OR_NULL, "bytes": INT}
LOSS: Declared = {
    **{**MAYBE_WHERE, "first_offset": INT_OR_NULL, "last_offset": INT_OR_NULL, "records": INT_OR_NULL},
    **{"bytes": INT, "reason": TEXT},
}
FILE_STATE: Declared = {
    **{
        "size": INT,
        "sha256?": TEXT,
        "crc32c?": TEXT,
        "unreadable?": TEXT,
        "mode": INT,
        "uid": INT,
        "gid": INT,
        "modified_ns": INT,
    }
}
ACTION: Declared = {
    **{"do": TEXT, "file": TEXT, "size?": INT, "from?": TEXT, "before?": FILE_STATE, "after?": FILE_STATE},
    **{"added?": FILE_STATE, "log_dir?": INT},
}
GUARD: Declared = {"file": TEXT, "size": INT, "modified_ns": INT, "log_dir?": INT, "sync?": BOOL}
DIRECTORY_TIME: Declared = {"directory": TEXT, "modified_ns": INT, "log_dir?": INT}
COPIES: Declared = [
    {
        **{**WHERE, "kept": INT},
        "targets": [
            {
                **{"node": INT, "dir": TEXT, "cut_to": INT_OR_NULL, "records_lost": INT_OR_NULL},
                **{"records_added": INT_OR_NULL, "bytes_copied": INT},
            }
        ],
    }
]
PLAN: Declared = {
    **{"klog_plan": INT, "id": TEXT, "created": TEXT, "command": TEXT, "log_dirs": [TEXT], "findings": [FINDING]},
    **{"losses": [LOSS], "actions": [ACTION], "broker_would_keep": ("null", AMOUNT), "kept": AMOUNT},
    **{"backup": TEXT_OR_NULL, "backups": [TEXT], "unchanged": [GUARD], "no_lock": [INT], "staging?": [TEXT]},
    "cut_out": [{"file": TEXT, "start": INT, "end": INT, "reason": TEXT, "facts": {"*": "*"}, "log_dir?": INT}],
    **{"directory_times": [DIRECTORY_TIME], "reads?": [TEXT], "copies?": COPIES, "beside?": [GUARD]},
    "new_directories?": [{"directory": TEXT, "log_dir?": INT}],
    **{"undoes?": TEXT, "leaves_times?": [DIRECTORY_TIME]},
}
NO_PLAN: Declared = {"id": "null", "actions": [ACTION]}
"""In the place of a plan if there is nothing to do."""


def planned(**more: Declared) -> Declared:
    """Return the output of a command that plans: the plan, or that there is none, and *more*."""
    return {**PLAN, **more}, {**NO_PLAN, **more}


RECOVER: Declared = planned(
    applied=BOOL,
    findings=[FINDING],
    kept=AMOUNT,
    lost=[LOSS],
    broker_would_keep=("null", AMOUNT),
    partitions=[
        {
            **{**MAYBE_WHERE, "directory": TEXT, "result": "=failed|repaired|to repair|left|clean", "actions": INT},
            **{"left": [TEXT], "reason": TEXT_OR_NULL, "choices": {"*": {"lost": [LOSS], "kept": AMOUNT}}},
            **{"notes": [TEXT], "settings": SETTINGS},
        }
    ],
    left=[FINDING],
    **{"marked?": [TEXT], "marked_before?": [TEXT], "broker_epoch?": INT_OR_NULL},
    **{"refused?": [{"log_dir": TEXT, "reason": TEXT, "first": TEXT_OR_NULL}]},
)
TRUNCATE: Declared = planned(
    applied=BOOL, to_offset=INT, log_end_offset=INT, kept=AMOUNT, lost=[LOSS], settings=SETTINGS
)
CLEANED: Declared = {
    **{"batches_in": INT, "batches_out": INT, "records_in": INT, "records_out": INT, "superseded": INT},
    **{"keyless": INT, "discarded": INT, "tombstones": INT, "expired": INT, "markers_in": INT, "markers_out": INT},
    **{"untouched": INT},
}
SECTION: Declared = {"first_offset": INT, "end_offset": INT, "bytes": INT}
ROUND: Declared = {
    **{"first_dirty": INT, "next_dirty": INT, "is_full": BOOL, "keys": INT, "slots": INT, "probes": INT},
    **{"collisions": INT, "mapped_records": INT, "mapped_bytes": INT, "counts": CLEANED},
    "groups": [{"bases": [INT], "bytes_in": INT, "bytes_out": INT, "counts": CLEANED, "is_changed": BOOL}],
}
COMPACT: Declared = planned(
    applied=BOOL,
    to=TEXT_OR_NULL,
    records_in=INT,
    records_out=INT,
    bytes_in=INT,
    bytes_out=INT,
    partitions=[
        {
            **{**MAYBE_WHERE, "directory": TEXT, "reason": TEXT, "log_start_offset?": INT, "log_end_offset?": INT},
            "result": "=failed|refused|compacted|to compact|estimated|nothing to do",
            **{"first_dirty_offset?": INT, "first_dirty_because?": TEXT, "first_uncleanable_offset?": INT},
            **{"bounds?": [{"offset": INT, "limit": TEXT, "reason": TEXT}], "dirty_ratio?": "number"},
            "sections?": {"clean": SECTION, "dirty": SECTION, "uncleanable": SECTION, "active": SECTION},
            **{"settings?": SETTINGS, "cleaner_offset?": INT, "rounds?": [ROUND]},
            "estimate?": {"rounds": INT, "keys": INT, "records": INT, "bytes_in": INT, "bytes_out": INT},
        }
    ],
)
RETENTION: Declared = [
    {
        **{**WHERE, "directory": TEXT, "records": INT, "exact": BOOL, "segments": INT, "bytes": INT},
        **{"by": [TEXT], "known": BOOL},
        "settings": {"*": {"value": "*", "origin": TEXT, "name": TEXT}},
    }
]
"""The records that the first retention pass removes."""
DUE_OFFSETS: Declared = [
    {
        **{"group": TEXT, "type": "=classic|consumer|streams", "partition": INT_OR_NULL, "offsets": INT},
        **{"since": INT_OR_NULL, "has_members": BOOL, "has_replicas": BOOL},
    }
]
"""The committed offsets that coordinators remove."""
WRITE: Declared = {
    **{"records": INT, "bytes": INT, "skipped": INT, "applied?": BOOL, "id?": TEXT_OR_NULL, "backup?": TEXT_OR_NULL},
    "partitions": [
        {
            **{**WHERE, "topic_id": TEXT_OR_NULL, "records": INT, "batches": INT, "bytes": INT, "segments": INT},
            **{"first_offset": INT, "log_end_offset": INT, "leader_epoch": INT_OR_NULL},
        }
    ],
    "open_transactions": [{**WHERE, "producer_id": INT, "first_offset": INT}],
    "notes": [TEXT],
    "retention?": RETENTION,
}
ADOPT: Declared = planned(
    applied=BOOL,
    adopted=[
        {
            **{"source": TEXT, **WHERE, "topic_id": TEXT, "log_dir": TEXT, "replaces": ("null", AMOUNT)},
            **{"log_start": INT, "log_end": INT, "records": INT, "epochs": "=keep|rewrite", "epoch": INT_OR_NULL},
            **{"producers": "=keep|drop", "ended": [{"producer_id": INT, "first_offset": INT}], "replicas": [INT]},
            **{"producers_kept": INT, "producers_forgotten": INT, "done_before": BOOL},
            "committed": [{"producer_id": INT, "first_offset": INT}],
            "left_open": [{"producer_id": INT, "first_offset": INT, "is_under_way": BOOL}],
        }
    ],
    refused=[{"source": TEXT, "id": TEXT, "message": TEXT, "next": TEXT}],
    notes=[TEXT],
    retention=RETENTION,
)
ATTACH: Declared = planned(
    applied=BOOL,
    attached=[
        {
            **{**WHERE, "topic_id": TEXT, "mode": "=metadata|log|topic", "segments": INT, "remote_start_offset": INT},
            **{"remote_end_offset": INT, "log_end_offset": INT, "leader_epoch": INT, "metadata_partition": INT},
            **{"records_written": INT, "markers": INT, "ended": [{"producer_id": INT, "first_offset": INT}]},
            "done_before": BOOL,
        }
    ],
    refused=[{**WHERE, "id": TEXT, "message": TEXT, "next": TEXT}],
    notes=[TEXT],
    next=[TEXT],
)
APPLIED: Declared = {**PLAN, "done": INT, "done_before": INT}
UNDONE: Declared = (APPLIED, PLAN)
PLANS: Declared = {
    "plans": [
        {
            **{"id": TEXT, "created": TEXT, "command": TEXT, "state": TEXT, "actions": INT, "log_dirs": [TEXT]},
            **{"undoes": TEXT_OR_NULL, "backup": TEXT},
        }
    ]
}
REPLICAS_PLAN: Declared = planned(
    applied=BOOL,
    copies=COPIES,
    left=[{**WHERE, "verdict": TEXT, "reason": TEXT, "choices": {"*": {"records": INT}}}],
    retention=RETENTION,
    offsets=DUE_OFFSETS,
)
METADATA_PLAN: Declared = planned(
    applied=BOOL,
    copies=COPIES,
    metadata={
        **{"base": {"node": INT_OR_NULL, **POINT}, "appended": [{"offset": INT, "epoch": INT, "records": [TEXT]}]},
        **{"extended": {"*": INT}, "cut": {"*": INT}, "lost": [WHERE], "unknown": [WHERE], "next": [TEXT]},
        "mended": (
            "null",
            {
                "epochs": [{**WHERE, "log": INT, "metadata": INT}],
                **{"producer_ids": INT, "next_producer_id": INT_OR_NULL},
            },
        ),
    },
    retention=RETENTION,
    offsets=DUE_OFFSETS,
)
FOLLOW: Declared = {
    **{"cluster_id": TEXT_OR_NULL, "backup": TEXT_OR_NULL, "backups": [TEXT]},
    "partitions": [
        {
            **{**WHERE, "topic_id": TEXT_OR_NULL, "leader": INT, "leader_epoch": INT, "first_offset": INT},
            **{"log_end_offset": INT, "high_watermark": INT, "log_start_offset": INT, "copied_bytes": INT},
            **{"copied_batches": INT, "missed": [[INT]], "cut": [[INT]], "cleaned_from": INT_OR_NULL},
            "error": TEXT_OR_NULL,
        }
    ],
}

# the cluster

VOTER: Declared = {"id": INT, "directory_id": TEXT, "endpoints": [TEXT], "kraft_versions": [INT]}
QUORUM_STATE: Declared = ("null", {"leader_id": INT, "leader_epoch": INT, "voted_id": INT})
BROKER: Declared = {
    **{"epoch": INT_OR_NULL, "incarnation": TEXT_OR_NULL, "rack": TEXT_OR_NULL, "fenced": "boolean|null"},
    **{"shutting_down": "boolean|null", "endpoints": ("null", [TEXT]), "log_dirs": ("null", [TEXT])},
    "cordoned_log_dirs": ("null", [TEXT]),
}
REGISTRATION: Declared = {
    **{"replicas": [INT], "isr": [INT], "elr": [INT], "last_known_elr": [INT], "leader": INT, "leader_epoch": INT},
    **{"partition_epoch": INT, "adding": [INT], "removing": [INT], "directories": [TEXT], "recovering": BOOL},
}
CONFIGS: Declared = {"*": {"*": TEXT_OR_NULL}}
METADATA_SHOW: Declared = {
    **{"node": INT_OR_NULL, "cluster_id": TEXT_OR_NULL, "directory_id": TEXT_OR_NULL, "end": POINT},
    **{"snapshot": ("null", POINT), "at": INT, "kraft_version": INT, "voters": ("null", [VOTER])},
    **{"quorum": {"leader": INT_OR_NULL, "epoch": INT_OR_NULL}, "quorum_state": QUORUM_STATE},
    **{"features": {"*": INT}, "metadata_version": TEXT_OR_NULL, "brokers": [{"id": INT, **BROKER}]},
    "controllers": [{"id": INT, "incarnation": TEXT, "endpoints": [TEXT]}],
    "topics": [{"topic": TEXT, "topic_id": TEXT, "partitions": [{"partition": INT, **REGISTRATION}]}],
    "configs": {"topic": CONFIGS, "broker": CONFIGS, "client-metrics": CONFIGS, "group": CONFIGS},
    "quotas": [{"entity": {"*": TEXT_OR_NULL}, "values": {"*": "number"}}],
    "scram": [{"user": TEXT, "mechanism": TEXT, "iterations": INT}],
    "acls": [
        {
            **{"id": TEXT, "resource_type": TEXT, "resource_name": TEXT, "pattern_type": TEXT, "principal": TEXT},
            **{"host": TEXT, "operation": TEXT, "permission": TEXT},
        }
    ],
    **{"next_producer_id": INT_OR_NULL, "delegation_tokens": INT, "unknown": {"*": INT}, "open_transaction": BOOL},
    "damage": [TEXT],
}
CHANGE: Declared = {
    **{"offset": INT, "timestamp": INT, "record": TEXT, "changed": [TEXT], "reason": TEXT_OR_NULL},
}


def or_null(declared: Declared) -> Declared:
    """Return the fields of a state that may be missing: each is then null."""
    return {name: ("null", one) for name, one in declared.items()}


METADATA_HISTORY: Declared = (
    {**CHANGE, "epoch": INT_OR_NULL, "topic": TEXT, "topic_id": TEXT, "partition": INT, **or_null(REGISTRATION)},
    {**CHANGE, "quorum_epoch": INT_OR_NULL, "broker": INT, **BROKER},
    {
        **{**CHANGE, "epoch": INT_OR_NULL, "leader": INT_OR_NULL, "leader_epoch": INT_OR_NULL, "kraft_version": INT},
        "voters": ("null", [VOTER]),
    },
)
METADATA_COMPARE: Declared = {
    **{"cluster_id": TEXT_OR_NULL, "best": INT_OR_NULL, "best_dir": TEXT},
    "logs": [
        {
            **{"node": INT_OR_NULL, "dir": TEXT, "roles": [TEXT], "start": INT, "end": POINT},
            **{
                "snapshot": ("null", POINT),
                "quorum_state": QUORUM_STATE,
                "behind": INT_OR_NULL,
                "bad_batches": [INT],
                "gone": INT,
            },
        }
    ],
    "diverged": [{"nodes": [INT_OR_NULL], "dirs": [TEXT], "offset": INT, "epochs": [INT]}],
    "behind_logs": TEXT_OR_NULL,
}
SPREAD: Declared = {
    **{"leaders": {"*": INT}, "replicas": {"*": INT}, "distinct": BOOL, "racks_covered": "boolean|null"},
    **{"leaders_spread": INT, "replicas_spread": INT},
}
ASSIGN: Declared = (
    {
        **{"algorithm": "=kraft|classic", "seed?": INT, "start_index?": INT, "shift?": INT, "start_partition": INT},
        **{"topic": TEXT_OR_NULL, "racks": {"*": TEXT_OR_NULL}, "fenced": [INT], "assignment": [[INT]], **SPREAD},
    },
    {
        "metadata": {"path": TEXT, "offset": INT, "problems": [TEXT]},
        "racks": {"*": TEXT_OR_NULL},
        "topics": [
            {
                **{"topic": TEXT, "topic_id": TEXT, "partitions": INT, **SPREAD, "doubled": [INT], "narrow": [INT]},
                "classic": (
                    "null",
                    {"start_index": INT, "shift": INT, "rack_aware": BOOL, "brokers": [INT], "grown_at": [INT]},
                ),
            }
        ],
    },
)
ANSWER: Declared = {
    **{"to": INT, "records": ("null", [INT]), "high_watermark": INT, "diverging?": [INT], "error?": TEXT},
    "throttled?": BOOL,
}
SIMULATE: Declared = {
    **{"step": INT, "at": INT, "do": TEXT, "leader": INT_OR_NULL, "epoch": INT, "isr": [INT], "pending": [TEXT]},
    "replicas": {"*": {"up": BOOL, "log_end": INT, "high_watermark": INT, "epochs": [[INT]]}},
    "remote": {"*": {"log_end": INT, "last_caught_up": INT_OR_NULL}},
    **{"acked": [INT], "fetch?": {"from": INT, "offset": INT, "last_fetched_epoch": INT}, "answer?": ANSWER},
    **{"answers?": [ANSWER], "waits?": {"of": INT, "until": INT}},
    "truncation?": {"*": [{"asks?": INT, "leader?": [INT], "local?": [INT], "to": INT, "complete?": BOOL}]},
    **{"unclean?": BOOL, "error?": TEXT, "note?": TEXT, "broken?": [INT]},
}
TIMELINE: Declared = {
    **{"time": INT, "clock": "=broker|producer|file", "kind": TEXT, "message": TEXT, "log_dir?": TEXT, "topic?": TEXT},
    **{"topic_id?": TEXT, "partition?": INT, "offset?": INT, "epoch?": INT, "node?": INT, "group?": TEXT},
    **{"transactional_id?": TEXT, "producer_id?": INT, "file?": TEXT, "position?": INT, "commits?": INT},
}
PARTITION: Declared = {
    **{"key?": TEXT_OR_NULL, "key_base64?": TEXT, "partitions": INT, "partition": {"*": INT_OR_NULL}}
}

# the disk

REASONS: Declared = {"*": INT}
SPACE: Declared = {
    **{"now": INT, "bytes": INT, "disk_bytes": INT, "reasons": REASONS, "missing": INT_OR_NULL, "problems": [TEXT]},
    "log_dirs": [
        {
            **{"path": TEXT, "bytes": INT, "disk_bytes": INT, "free": INT_OR_NULL, "capacity": INT_OR_NULL},
            **{"segments": INT, "reasons": REASONS},
        }
    ],
    "topics": [
        {
            **{"topic": TEXT_OR_NULL, "bytes": INT, "disk_bytes": INT, "segments": INT, "oldest": INT_OR_NULL},
            **{"due": INT_OR_NULL, "reasons": REASONS, "partitions": INT, "settings": SETTINGS},
            "remote_bytes?": INT,
        }
    ],
    "remote?": [
        {
            **{"topic": TEXT, "partition": INT, "topic_id": TEXT, "bytes": INT, "reasons": REASONS},
            **{"counted_bytes": INT_OR_NULL, "retention_bytes": INT_OR_NULL},
        }
    ],
    "segments": [
        {
            **{**MAYBE_WHERE, "log_dir": TEXT_OR_NULL, "directory": TEXT, "base_offset": INT, "bytes": INT},
            **{"index_bytes": INT, "disk_bytes": INT, "last_timestamp": INT_OR_NULL, "reason": TEXT},
            **{"due": INT_OR_NULL, "because": TEXT_OR_NULL},
        }
    ],
    "other": [{"file": TEXT, "bytes": INT, "disk_bytes": INT, "reason": TEXT_OR_NULL}],
    "imbalance": (
        "null",
        {
            **{"fullest": TEXT, "fullest_bytes": INT, "emptiest": TEXT, "emptiest_bytes": INT},
            **{"mean_bytes": INT, "spread": "number", "shared": BOOL},
        },
    ),
    "codecs": [
        {
            **{"topic": TEXT_OR_NULL, "codec": TEXT, "batch_bytes": INT_OR_NULL, "bytes": INT, "low": INT, "high": INT},
            "sampled_bytes": INT,
        }
    ],
    "compaction": [{**MAYBE_WHERE, "log_dir": TEXT_OR_NULL, "bytes": INT, "bytes_after": INT, "sampled": "number"}],
    "keys": [
        {
            **{**MAYBE_WHERE, "key?": TEXT_OR_NULL, "key_base64?": TEXT, "length?": INT, "records": INT},
            **{"share": "number", "error": "number", "sampled": "number"},
        }
    ],
    "plan": [{"command?": TEXT, "manual?": TEXT, "frees": INT, "why": TEXT}],
}
EXPLANATIONS: Declared = {
    "explanations": [
        {
            **{"id": TEXT, "command": TEXT, "severity": TEXT_OR_NULL, "meaning": TEXT_OR_NULL},
            **{"broker": TEXT_OR_NULL, "cause": TEXT_OR_NULL, "fix": TEXT_OR_NULL},
        }
    ]
}
REMOTE_SEGMENT: Declared = {
    **{"segment_id": TEXT, "start_offset": INT, "end_offset": INT_OR_NULL, "bytes": INT_OR_NULL},
    "state": ("null", "=COPY_SEGMENT_STARTED|COPY_SEGMENT_FINISHED|DELETE_SEGMENT_STARTED"),
    **{"max_timestamp": INT_OR_NULL, "epochs": [[INT]], "txn_index_empty": "boolean|null", "broker": INT_OR_NULL},
    "custom_metadata": TEXT_OR_NULL,
    "role": "=serves|overlapped|dead|below-start|unfinished|deleting|orphan|entry-lost",
    "objects": ("null", {"*": INT}),
}
REMOTE_PARTITION: Declared = {
    **{"topic": TEXT, "partition": INT, "topic_id": TEXT, "log_start_offset": INT_OR_NULL},
    **{"local_log_start_offset": INT_OR_NULL, "log_end_offset": INT_OR_NULL, "remote_start_offset": INT_OR_NULL},
    **{"remote_end_offset": INT_OR_NULL, "remote_bytes": INT, "segments": INT, "states": {"*": INT}, "deleted": INT},
    **{"orphans": INT, "entries_lost": INT, "holes": [[INT]], "damaged": [TEXT]},
    "verdict": "=damaged|hole|orphans|unknown|whole|local-only|remote-only",
    "segment_list?": [REMOTE_SEGMENT],
}
REMOTE_LS: Declared = {
    "tier": ("null", {"uri": TEXT, "layout": TEXT_OR_NULL, "objects": INT, "bytes": INT}),
    "metadata": ("null", {"partitions": INT, "events": INT, "dropped": INT}),
    "partitions": [REMOTE_PARTITION],
}
REMOTE_ORPHANS: Declared = {
    **{"segments": INT, "objects": INT, "bytes": INT, "young": INT, "foreign": [TEXT]},
    "orphans": [
        {
            **{**WHERE, "topic_id": TEXT, "segment_id": TEXT, "start_offset": INT, "bytes": INT, "keys": [TEXT]},
            "why": "=no-entry|called-deleted|topic-deleted",
        }
    ],
}
REMOTE_FETCH: Declared = {
    "partitions": [
        {
            **{**WHERE, "topic_id": TEXT, "path": TEXT, "segments": INT, "bytes": INT, "records": INT},
            **{"remote_segments": INT, "local_segments": INT, "first_offset": INT, "log_end_offset": INT},
            **{"holes": [[INT]], "damaged": [{"segment_id": TEXT, "file": TEXT, "message": TEXT}]},
            **{"rebuilt": [TEXT], "notes": [TEXT]},
        }
    ]
}
SCHEMA_ROW: Declared = {
    **{"context": TEXT, "subject": TEXT, "version": INT, "id": INT, "guid": TEXT, "type": TEXT, "deleted": BOOL},
    "references": [{"subject": TEXT, "version": INT, "name": TEXT}],
    **{"state": "=live|deleted|replaced|hard-deleted", "offset": INT, "timestamp": INT},
    **{"record": TEXT_OR_NULL, "error": TEXT_OR_NULL},
}
REGISTRIES: Declared = [{"path": TEXT, "kind": "=confluent|karapace|apicurio", "records": INT, "bad_records": [INT]}]
SCHEMAS_LIST: Declared = {
    "sources": REGISTRIES,
    **{"config": {"*": {"*": "*"}}, "mode": {"*": {"*": "*"}}, "contexts": [TEXT], "schemas": [SCHEMA_ROW]},
}
SCHEMAS_CHECK: Declared = {
    **{"sources": REGISTRIES, "schemas": INT, "records": INT, "sampled": TEXT_OR_NULL},
    "topics": [
        {
            **{"topic": TEXT, "side": "=key|value", "records": INT, "null": INT, "unframed": INT, "framed": INT},
            "decoded": INT,
            "ids": {
                "*": {
                    **{"records": INT, "subject": TEXT_OR_NULL, "version": INT_OR_NULL, "errors": {"*": INT}},
                    **{"first": {"partition": INT, "offset": INT}, "only_unknown_fields": INT},
                }
            },
        }
    ],
    "findings": [
        {
            **{"id": TEXT, "severity": "=damage|warning|note", "topic": TEXT_OR_NULL, "side": TEXT_OR_NULL},
            **{"schema_id": INT_OR_NULL, "guid": TEXT_OR_NULL, "subject": TEXT_OR_NULL, "version": INT_OR_NULL},
            **{"records": INT, "partition": INT_OR_NULL, "offset": INT_OR_NULL, "message": TEXT, "fix": TEXT_OR_NULL},
        }
    ],
}
SCHEMAS_SHOW: Declared = {
    **{**SCHEMA_ROW, "schema": TEXT, "resolved?": (TEXT_OR_NULL, {"*": TEXT})},
    "claimants?": [{**SCHEMA_ROW, "schema": TEXT}],
}
REMOTE_FINDINGS: Declared = {
    **{"partitions": INT, "segments": INT, "objects": INT, "bytes": INT, "batches": INT, "records": INT},
    "findings": [
        {
            **{"id": TEXT, "severity": "=damage|warning|note", **MAYBE_WHERE, "tier": "=remote|local|metadata"},
            **{"segment_id": TEXT_OR_NULL, "file": TEXT, "position": INT_OR_NULL, "offset": INT_OR_NULL},
            **{"message": TEXT, "broker": TEXT, "fix": TEXT_OR_NULL},
        }
    ],
}
