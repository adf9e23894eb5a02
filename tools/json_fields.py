"""The fields of `--output json`, declared once.  They are the source of docs/schemas; tests compare outputs with them.

A text names JSON's types, `|` between them, or, with `=` in front, all possible words.  A list is an array, a dict an
object (`?` ends the name of a field that may be left out; the name `*` stands for any), a tuple one of several.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tools import json_parts as parts

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "docs", "schemas")

Declared = Any
"""A declaration as above."""

INT, TEXT, BOOL = parts.INT, parts.TEXT, parts.BOOL
INT_OR_NULL, TEXT_OR_NULL = parts.INT_OR_NULL, parts.TEXT_OR_NULL
WHERE: Declared = parts.WHERE
FINDING: Declared = parts.FINDING
RANGES: Declared = [[INT]]
FINDINGS: Declared = {
    **{"partitions": INT, "segments": INT, "bytes": INT, "batches": INT, "records": INT},
    "findings": [{**FINDING, "tier?": "=remote|local|metadata", "segment_id?": TEXT_OR_NULL}],
    "remote?": {name: kind for name, kind in parts.REMOTE_FINDINGS.items() if name != "findings"},
}
RECORD: Declared = {
    **{"offset": INT, "timestamp": INT, "key?": TEXT_OR_NULL, "key_base64?": TEXT, "value?": TEXT_OR_NULL},
    **{"value_base64?": TEXT, "value_hex?": TEXT, "value_size?": INT, "partition?": INT, "topic?": TEXT},
    **{"headers?": [[(TEXT_OR_NULL, {"base64": TEXT}, {"hex": TEXT}, {"size": INT})]]},
    **{"timestamp_type?": TEXT, "leader_epoch?": INT, "producer_id?": INT, "producer_epoch?": INT, "sequence?": INT},
    **{"transactional?": BOOL, "control?": TEXT, "coordinator_epoch?": INT, "position": INT, "file?": TEXT},
    **{"tier?": "=remote", "segment_id?": TEXT},
}
DECODED: Declared = {
    **{**RECORD, "key?": "*", "value?": "*"},
    **{f"{side}_schema_id?": INT for side in ("key", "value")},
    **{f"{side}_{name}?": TEXT for side in ("key", "value") for name in ("schema_guid", "message", "error")},
}
"""A record with --schemas."""
BATCH: Declared = {
    **{"base_offset": INT_OR_NULL, "last_offset": INT, "records": INT_OR_NULL, "position": INT, "size": INT},
    **{"magic": INT, "codec": TEXT, "crc": INT, "crc_holds": BOOL, "leader_epoch": INT_OR_NULL},
    **{"producer_id": INT_OR_NULL, "producer_epoch": INT_OR_NULL, "base_sequence": INT_OR_NULL},
    **{"last_sequence": INT_OR_NULL, "max_timestamp": INT_OR_NULL, "timestamp_type": TEXT_OR_NULL},
    **{"transactional": BOOL, "control": BOOL, "delete_horizon_ms": INT_OR_NULL, "partition?": INT, "topic?": TEXT},
    **{"tier?": "=remote", "segment_id?": TEXT},
}
DAMAGE: Declared = {
    **{"damage": TEXT, "position": INT, "offset?": INT, "stored?": INT, "computed?": INT, "size?": INT},
    **{"detail?": TEXT, "file?": TEXT, "tier?": "=remote", "segment_id?": TEXT_OR_NULL},
}
DUMP: Declared = (
    *(RECORD, DECODED, BATCH, DAMAGE, {"offset": INT, "position": INT}, {"offset": INT, "timestamp": INT}),
    {
        **{"version": INT, "producer_id": INT, "first_offset": INT, "last_offset": INT, "last_stable_offset": INT},
    },
)
PARTITION_OF_DISK: Declared = {
    **{"topic": TEXT_OR_NULL, "partition": INT_OR_NULL, "topic_id": TEXT_OR_NULL, "segments": INT, "bytes": INT},
    **{"log_start_offset": INT_OR_NULL, "high_watermark": INT_OR_NULL, "log_end_offset": INT_OR_NULL},
    **{"recovery_point": INT_OR_NULL, "cleaner_offset": INT_OR_NULL, "leader_epoch": INT_OR_NULL, "directory": TEXT},
    **{"local_log_start_offset": INT_OR_NULL, "remote_end_offset": INT_OR_NULL, "remote_segments": INT_OR_NULL},
    **{"remote_bytes": INT_OR_NULL, "state": TEXT, "notes": [TEXT]},
}
SEGMENT: Declared = {
    **{"file": TEXT, "base_offset": INT, "last_offset": INT_OR_NULL, "records": INT_OR_NULL, "batches": INT},
    **{"bytes": INT, "index_entries": INT_OR_NULL, "time_index_entries": INT_OR_NULL, "notes": [TEXT]},
    **{"aborted_transactions": INT_OR_NULL, "first_timestamp": INT_OR_NULL, "last_timestamp": INT_OR_NULL},
    **{"codecs": [TEXT], "flags": [TEXT]},
}
LOG_DIR: Declared = {
    **{"kind": "=log dir", "path": TEXT, "cluster_id": TEXT_OR_NULL, "node_id": INT_OR_NULL, "notes": [TEXT]},
    **{"directory_id": TEXT_OR_NULL, "version": TEXT_OR_NULL, "metadata_version": TEXT_OR_NULL, "clean_shutdown": BOOL},
    **{"broker_epoch": INT_OR_NULL, "locked": "boolean|null", "lock_pid": INT_OR_NULL, "copy": ("null", {"*": "*"})},
    **{"partitions": [PARTITION_OF_DISK]},
}
INDEX: Declared = {
    **{"file": TEXT_OR_NULL, "slot": INT_OR_NULL, "entries": INT_OR_NULL, "offset": INT_OR_NULL, "probes": INT},
    **{"warm_from": INT_OR_NULL, "problem": TEXT_OR_NULL},
}
LOOKUP: Declared = {
    **{"topic": TEXT_OR_NULL, "partition": INT_OR_NULL, "offset": INT_OR_NULL, "timestamp?": INT},
    "outcome": "=record|control|gap|at end|beyond end|below start|nothing so late|damaged",
    "segment": ("null", {"file": TEXT, "base_offset": INT, "next_base_offset": INT_OR_NULL, "segments": INT}),
    "time_index?": ("null", {**INDEX, "timestamp": INT_OR_NULL, "largest_timestamp": INT_OR_NULL, "by_mtime": BOOL}),
    "index": ("null", {**INDEX, "position": INT_OR_NULL}),
    "scan": ("null", {"from": INT, "batches": INT}),
    "batch": (
        "null",
        {
            **{"position": INT, "size": INT, "base_offset": INT, "last_offset": INT, "crc_holds": BOOL},
            "codec": TEXT_OR_NULL,
        },
    ),
    **{"record": ("null", RECORD), "notes": [TEXT], "problems": [TEXT]},
    "tier?": (
        "null",
        {
            **{"name": "=remote|local", "segment_id": TEXT_OR_NULL, "start_offset": INT_OR_NULL},
            **{"end_offset": INT_OR_NULL, "epoch": INT_OR_NULL},
        },
    ),
    "first_record?": ("null", {"offset": INT, "timestamp": INT}),
}
PLACE: Declared = {**WHERE, "first_offset": INT, "last_offset": INT}
MISROUTED: Declared = {
    **{"partitions": INT, "batches": INT, "bytes": INT, "damage": INT},
    "coverage": {
        **{"partitions_known": INT_OR_NULL, "partitions_read": INT, "missing": [TEXT]},
        "earliest_timestamp": INT_OR_NULL,
    },
    "misrouted": [
        {
            **{"confidence": "=confirmed|likely|possible", **PLACE, "records": INT, "file": TEXT, "position": INT},
            **{"size": INT, "crc": INT, "producer_id": INT, "producer_epoch": INT, "base_sequence": INT},
            **{"max_timestamp": INT, "aborted": BOOL, "home": ("null", PLACE), "twins": [PLACE]},
            "reasons": ["=same-bytes|same-records|sequence-begins-late|key-elsewhere|schema-foreign"],
        }
    ],
    "legal_twins": [{"topics": [TEXT], "groups": INT, "why": "=share|run"}],
}
TRANSACTIONS: Declared = {
    "transactions": [
        {
            **{"transactional_id": TEXT_OR_NULL, "producer_id": INT, "producer_epoch": INT},
            "state": "=committed|aborted|open|hanging",
            **{"began": INT_OR_NULL, "ended": INT_OR_NULL, "duration": INT_OR_NULL, "records": INT},
            "partitions": [
                {
                    **{**WHERE, "first_offset": INT_OR_NULL, "last_offset": INT_OR_NULL, "records": INT},
                    **{"marker_offset": INT_OR_NULL, "coordinator_epoch": INT_OR_NULL},
                }
            ],
            "coordinator": (
                "null",
                {"state": TEXT, "began": INT_OR_NULL, "updated": INT_OR_NULL, "timeout": INT_OR_NULL},
            ),
            "abort": ("null", TEXT, [TEXT]),
        }
    ]
}
FATES = (
    "=serves|empties|strays|creates|promotes|replaced|deletes|keeps|moves|leaderless|offline|unreached|refuses"
    "|forgets-remote|hides-remote"
)
DOCTOR: Declared = {
    **{"version": TEXT, "starts": BOOL, "loses": INT, "notes": [{"id": TEXT, "message": TEXT}]},
    **{"retention": parts.RETENTION, "offsets": parts.DUE_OFFSETS},
    "fatal": ("null", {"id": TEXT, "message": TEXT, "log_dir": TEXT_OR_NULL, "directory": TEXT_OR_NULL}),
    "log_dirs": [
        {
            **{"path": TEXT, "fate": TEXT, "reason": TEXT_OR_NULL, "cluster_id": TEXT_OR_NULL, "node_id": INT_OR_NULL},
            **{"directory_id": TEXT_OR_NULL, "clean": BOOL, "lock": TEXT},
        }
    ],
    "steps": [
        {
            "step": "=format|lock|metadata|load|recover|partitions|after",
            **{"fate": TEXT, "message": TEXT},
        }
    ],
    "partitions": [
        {
            **{**WHERE, "topic_id": TEXT_OR_NULL, "log_dir": TEXT_OR_NULL, "directory": TEXT_OR_NULL},
            "fate": FATES,
            **{"reason": TEXT_OR_NULL, "becomes": TEXT_OR_NULL, "log_start": INT_OR_NULL, "log_end": INT_OR_NULL},
            **{"records": INT_OR_NULL, "lost_records": INT_OR_NULL, "lost_bytes": INT_OR_NULL, "message": TEXT_OR_NULL},
        }
    ],
    "recovery": {"partitions": INT, "segments": INT, "bytes": INT, "seconds": ["number"]},
    "next": [{"command?": TEXT, "manual?": TEXT, "why": TEXT}],
}
FETCH: Declared = {
    **{"topic": TEXT_OR_NULL, "partition": INT_OR_NULL, "offset": INT, "error": INT, "high_watermark": INT},
    **{"last_stable_offset": INT, "log_start_offset": INT, "bytes": INT, "partial": ("null", {"*": "*"})},
    "batches": [{"base_offset": INT, "last_offset": INT, "position": INT, "size": INT}],
    "aborted": [{"*": "*"}],
}
BYTES: Declared = {
    **{"file": TEXT, "position": INT, "size": INT, "kind": TEXT, "fields": parts.BYTE_FIELDS, "more_problems": INT},
    "problems": [{"position": INT, "name": TEXT, "problem": TEXT, "decompressed": BOOL}],
}
KEYS: Declared = {
    "topics": [
        {
            **{"topic": TEXT, "topic_id": TEXT_OR_NULL, "partitions": INT_OR_NULL, "partitions_from": TEXT_OR_NULL},
            **{"keys": INT, "records": INT, "null_keys": INT, "empty_keys": INT, "rule": TEXT_OR_NULL},
            **{"share": "number|null", "rules": {"*": INT}, "in_several_partitions": INT, "damages": INT},
            "misplaced": {
                **{"keys": INT, "records": INT, "grown_from": {"*": INT}, "another_rule": {"*": INT}},
                **{"unframed": INT, "none": INT},
            },
            "examples": [
                {
                    **{"key?": TEXT, "key_base64?": TEXT, "partition": INT, "expected": INT_OR_NULL, "records": INT},
                    **{"first_offset": INT, "last_offset": INT, "why": TEXT},
                }
            ],
        }
    ]
}
GROUP_OFFSET: Declared = {
    **{"topic": TEXT, "partition": INT, "offset": INT_OR_NULL, "leader_epoch": INT_OR_NULL, "metadata": TEXT_OR_NULL},
    **{"committed_at": INT_OR_NULL, "log_start": INT_OR_NULL, "log_end": INT_OR_NULL, "lag": INT_OR_NULL},
    **{"certain?": BOOL, "producer_id?": INT, "in_flight?": RANGES},
}
GROUPS: Declared = {
    "groups": [
        {
            **{"group": TEXT, "type": "=classic|consumer|share|streams", "state": TEXT_OR_NULL},
            **{"protocol": TEXT_OR_NULL, "epoch": INT_OR_NULL, "coordinator_partition": INT_OR_NULL, "certain?": BOOL},
            "members": [
                {
                    **{"member_id": TEXT_OR_NULL, "instance_id": TEXT_OR_NULL, "client_id": TEXT_OR_NULL},
                    **{"host": TEXT_OR_NULL, "partitions": [["string|integer"]]},
                }
            ],
            **{"offsets": [GROUP_OFFSET], "pending": [GROUP_OFFSET]},
        }
    ]
}
STATS: Declared = [
    {
        **{"topic": TEXT_OR_NULL, "partition": INT_OR_NULL, "records": INT, "markers": INT, "bytes": INT, "keys": INT},
        **{"null_keys": INT, "null_values": INT, "codecs": {"*": INT}, "first_timestamp": INT_OR_NULL},
        **{"last_timestamp": INT_OR_NULL, "first_offset": INT_OR_NULL, "last_offset": INT_OR_NULL},
        "top_keys": [{"key?": TEXT, "key_base64?": TEXT, "records": INT}],
        "largest_records": [{"bytes": INT, "offset": INT, "position": INT, "file": TEXT}],
        **{"damages": INT, "path": TEXT, "topic_id": TEXT_OR_NULL, "cluster_id": TEXT_OR_NULL},
    }
]
COPY: Declared = {
    **{"dir": TEXT, "log_start": INT, "log_end": INT, "last_epoch": INT_OR_NULL, "epochs": RANGES},
    **{"high_watermark": INT_OR_NULL, "cleaner_offset": INT_OR_NULL, "batches": INT_OR_NULL, "bad_batches": [INT]},
    **{"only_here": RANGES, "records_only_here": INT, "first_difference": {"*": INT_OR_NULL}},
    **{"cut_if_leads": {"*": INT_OR_NULL}, "clean_marker": "boolean|null", "directory_known": "boolean|null"},
    **{"expected_from": INT, "truncated_at_start": BOOL, "start_fails": TEXT_OR_NULL},
    **{"open_transactions": INT_OR_NULL, "holes?": {"explained": INT, "unexplained": RANGES}},
}
REPLICAS: Declared = {
    "cluster_id": TEXT_OR_NULL,
    "metadata": ("null", {"dir": TEXT, "node": INT_OR_NULL, "offset": INT, "epoch": INT_OR_NULL}),
    "disks": [
        {
            **{"node": INT, "dir": TEXT, "directory_id": TEXT_OR_NULL, "clean_marker": BOOL},
            "broker_epoch": INT_OR_NULL,
        }
    ],
    "partitions": [
        {
            **{**WHERE, "topic_id": TEXT_OR_NULL, "compacted": "boolean|null"},
            "verdict": "=same|behind|missing|diverged|damaged|incomparable",
            **{"common_prefix_end": INT_OR_NULL, "replicas": ("null", [INT]), "isr": ("null", [INT])},
            **{"elr": ("null", [INT]), "last_known_elr": ("null", [INT]), "leader_epoch": INT_OR_NULL},
            **{"unclean": "boolean|null", "copies": {"*": COPY}, "missing": [INT], "not_given": [INT]},
            "absent_log_dirs": {"*": [TEXT]},
            **{"leader_if_all_back": INT_OR_NULL, "because": TEXT, "acks_all_safe": "boolean|null"},
            "lost_if_leads": {"*": {"records": INT, "ranges": RANGES, "committed_below": INT_OR_NULL}},
            **{"advice": [TEXT], "problem?": TEXT, "what_if?": {"up": RANGES, "set": {"*": "*"}, "outcomes": ["*"]}},
        }
    ],
    "summary": {"*": INT},
}
SCHEMAS: dict[str, Declared] = {
    "verify": FINDINGS,
    "audit": FINDINGS,
    "audit misrouted": MISROUTED,
    "describe": (LOG_DIR, {"kind": "=partition", "path": TEXT, **PARTITION_OF_DISK, "segment_list": [SEGMENT]}),
    "lookup": LOOKUP,
    "transactions": TRANSACTIONS,
    "doctor": DOCTOR,
    "fetch": FETCH,
    "bytes": BYTES,
    "keys check": KEYS,
    **{"schemas list": parts.SCHEMAS_LIST, "schemas show": parts.SCHEMAS_SHOW, "schemas check": parts.SCHEMAS_CHECK},
    "groups": GROUPS,
    "stats": STATS,
    "replicas diff": REPLICAS,
    **{"remote ls": parts.REMOTE_LS, "remote orphans": parts.REMOTE_ORPHANS},
    "remote attach": parts.ATTACH,
    **{"remote verify": parts.REMOTE_FINDINGS, "remote fetch": parts.REMOTE_FETCH},
    **{"recover": parts.RECOVER, "truncate": parts.TRUNCATE, "compact": parts.COMPACT, "write": parts.WRITE},
    **{
        "follow": parts.FOLLOW,
        "adopt": parts.ADOPT,
        "apply": parts.APPLIED,
        "undo": parts.UNDONE,
        "plans": parts.PLANS,
        "explain": parts.EXPLANATIONS,
    },
    **{"replicas plan": parts.REPLICAS_PLAN, "metadata plan": parts.METADATA_PLAN, "space": parts.SPACE},
    **{"metadata show": parts.METADATA_SHOW, "metadata compare": parts.METADATA_COMPARE, "assign": parts.ASSIGN},
}
"""The output of each command with `--output json`."""
LINES: dict[str, Declared] = {
    **{"dump": DUMP, "records": (RECORD, DECODED, DAMAGE), "search": (RECORD, DECODED), "timeline": parts.TIMELINE},
    "partition": parts.PARTITION,
    **{"metadata history": parts.METADATA_HISTORY, "replicas simulate": parts.SIMULATE},
    "serve": {
        **{"client": TEXT, "client_id": TEXT_OR_NULL, "software": TEXT_OR_NULL, "api": TEXT, "version": INT},
        **{"ms": "number", "bytes": INT},
    },
}
"""A line of `--output jsonl`, for each command without an object of its own in `--output json`."""
ROWS = {
    **{"records": "records", "search": "records", "timeline": "events", "partition": "keys"},
    **{"metadata history": "changes", "replicas simulate": "steps"},
}
"""The member with all lines in `--output json`."""
SAME = {
    **{"spark verify": "verify", "spark stats": "stats", "spark search": "search", "spark audit": "audit misrouted"},
    "audit headers": "audit",
}
"""Commands that print what another prints."""


def schema(declared: Declared, only_these: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of a declaration.  *only_these*: others are errors, though later versions may add some."""
    if isinstance(declared, tuple):
        return {"anyOf": [schema(one, only_these) for one in declared]}
    if isinstance(declared, list):
        return {"type": "array", "items": schema(declared[0], only_these)}
    if isinstance(declared, dict):
        fields = {name.removesuffix("?"): schema(one, only_these) for name, one in declared.items()}
        if "*" in fields:
            return {"type": "object", "additionalProperties": fields["*"]}
        needed = [name for name in declared if not name.endswith("?")]
        closed = {"additionalProperties": False} if only_these else {}
        return {"type": "object", "properties": fields, "required": needed, **closed}
    if declared == "*":
        return {}
    if declared.startswith("="):
        return {"enum": declared[1:].split("|")}
    types = declared.split("|")
    return {"type": types[0] if len(types) == 1 else types}


def fields(declared: Declared) -> list[str]:
    """Return the names of the outermost fields, each once."""
    if isinstance(declared, dict):
        return [name.removesuffix("?") for name in declared]
    return list(dict.fromkeys(name for one in declared for name in fields(one)))


def every() -> dict[str, Declared]:
    """Return the declarations of all commands."""
    return SCHEMAS | LINES


def file_of(command: str) -> str:
    """Return the name of a command's file in docs/schemas."""
    return command.replace(" ", "-") + ".schema.json"


def text(command: str) -> str:
    """Return a command's schema as the file has it."""
    title = f"klog {command} --output json" if command in SCHEMAS else f"a line of klog {command} --output jsonl"
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | schema(every()[command]), indent=1) + "\n"


def main() -> None:
    os.makedirs(FOLDER, exist_ok=True)
    for command in every():
        with open(os.path.join(FOLDER, file_of(command)), "w", encoding="utf-8") as file:
            file.write(text(command))


if __name__ == "__main__":
    main()
