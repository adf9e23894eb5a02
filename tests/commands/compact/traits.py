"""The features of a workload that matter to a cleaner, and the cleaner's work on it, in words: for tests of the
tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.commands.compact.oracle import Candidate, Round
from tests.commands.compact.workloads import Workload
from tests.oracles.plain import decode
from tests.oracles.plain.decode import CODECS, Batch


def batches(log_dir: Path) -> Iterator[Batch]:
    """Yield all batches of a log dir; a workload has no damage."""
    for log in sorted(log_dir.glob("*/*.log")):
        for found in decode.scan(log.read_bytes()):
            assert isinstance(found, Batch), (log, found)
            yield found


def held(workload: Workload) -> set[str]:
    """Return what there is to be cleaned."""
    found: set[str] = set()
    for batch in batches(workload.log_dir):
        found |= _of_batch(batch)
    for told in workload.told:
        found.add(told.split(": ")[-1].split(" at ")[0].split(" to ")[0].split(" [")[0].rstrip(","))
    for settings in workload.topic_settings.values():
        found |= {f"{name}={settings[name]}" for name in ("cleanup.policy", "delete.retention.ms")}
        found |= {name for name in ("max.compaction.lag.ms", "max.message.bytes") if name in settings}
        found |= {"min.compaction.lag.ms"} if settings["min.compaction.lag.ms"] != "0" else set()
    found |= set(workload.broker_settings) | {f"{len(workload.topic_settings)} topics"}
    return found


def _of_batch(batch: Batch) -> set[str]:
    found = {f"v{batch.magic} {CODECS[batch.codec]}", f"v{batch.magic} {batch.timestamp_type}"}
    named = {
        "marker": batch.control,
        "transactional": batch.transactional and not batch.control,
        "idempotent": batch.producer_id >= 0 and not batch.transactional,
        "empty batch": batch.count == 0,
        "delete horizon": batch.delete_horizon_ms is not None,
        "marker with delete horizon": batch.control and batch.delete_horizon_ms is not None,
        "holes": batch.magic == 2 and 0 < len(batch.records) <= batch.last_offset - batch.base_offset,
        "tombstone": any(record.value is None for record in batch.records),
        "tombstone of old": batch.magic < 2 and any(record.value is None for record in batch.records),
        "null key": any(record.key is None for record in batch.records),
        "empty key": any(record.key == b"" for record in batch.records),
        "large key": any(len(record.key or b"") > 1000 for record in batch.records),
        "empty value": any(record.value == b"" for record in batch.records),
        "headers": any(record.headers for record in batch.records),
    }
    return found | {name for name, holds in named.items() if holds}


def decided(candidates: dict[str, Candidate], rounds: Sequence[Round]) -> set[str]:
    """Return the decisions and the result of the cleaner."""
    found = set()
    for each in candidates.values():
        found |= {
            "open transaction" if each.last_stable < min(each.high_watermark, each.log_end) else "",
            "log start inside a segment" if each.log_start not in {s.base_offset for s in each.segments} else "",
            "first dirty inside a segment" if each.first_dirty not in {s.base_offset for s in each.segments} else "",
            "not eligible" if not each.eligible and each.cleanable_bytes else "",
            "urgent" if each.delay_ms and each.eligible else "",
            "empty segment" if any(s.size == 0 for s in each.segments[:-1]) else "",
            "far apart" if each.segments[-1].base_offset - each.segments[0].base_offset > 2**31 else "",
            "active producers" if each.producers else "",
            "producer known by its marker alone" if any(last.offset is None for last in each.producers) else "",
        }
    for one in rounds:
        full = one.next_dirty is not None and one.next_dirty < one.first_uncleanable
        found |= {"map full" if full else "", one.error.split(": ")[-1], "invalid" if one.invalid_messages else ""}
    found |= {"several rounds" if len(rounds) > len({one.partition for one in rounds}) else ""}
    found |= {"nothing to do"} if not rounds else set()
    return found - {""}
