"""The trail of a lookup as JSON, one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog.partition.lookup.lookup_trail import IndexTrail, SegmentTrail, TimeIndexTrail, Trail


class Lines:
    """Makes lines about one partition: its topic and number, None if the directory's name does not contain them."""

    def __init__(self, topic: str | None, partition: int | None) -> None:
        self._head = f'{{"topic":{_value(topic)},"partition":{_value(partition)}'
        self._segments: dict[SegmentTrail | None, str] = {}
        self._names: dict[str | None, str] = {None: "null"}

    def of(self, trail: Trail) -> str:
        """Return *trail* as a line, without its end."""
        line = f'{self._head},"timestamp":{trail.target}' if trail.by_time else self._head
        offset = trail.offset if trail.by_time else trail.target
        line += f',"offset":{_value(offset)},"outcome":"{trail.outcome.value}","segment":{self._segment(trail.segment)}'
        if trail.by_time:
            line += f',"time_index":{self._time_index(trail.time_index)}'
        line += f',"index":{self._index(trail.offset_index)}'
        scan, batch = trail.scan, trail.batch
        if scan is None or batch is None:
            scanned = "null" if scan is None else f'{{"from":{scan.position},"batches":{scan.batches}}}'
            line += f',"scan":{scanned},"batch":null'
        else:
            line += (
                f',"scan":{{"from":{scan.position},"batches":{scan.batches}}},"batch":{{"position":{batch.position},'
                f'"size":{batch.size},"base_offset":{batch.base_offset},"last_offset":{batch.last_offset},'
                f'"crc_holds":{"true" if batch.crc_holds else "false"},"codec":"{batch.codec}"}}'
            )
        line += ',"record":' + (trail.record_json or b"null").decode()
        if trail.notes or trail.problems:
            return f'{line},"notes":{_value(trail.notes)},"problems":{_value(trail.problems)}}}'
        return line + ',"notes":[],"problems":[]}'

    def _name(self, file: str | None) -> str:
        if file not in self._names:
            self._names[file] = _value(file)
        return self._names[file]

    def _segment(self, found: SegmentTrail | None) -> str:
        if found not in self._segments:
            self._segments[found] = _value(None if found is None else found._asdict())
        return self._segments[found]

    def _index(self, found: IndexTrail | None) -> str:
        if found is None:
            return "null"
        return (
            f'{{"file":{self._name(found.file)},"slot":{_value(found.slot)},"entries":{found.entries},'
            f'"offset":{found.offset},"position":{found.position},"probes":{found.probes},'
            f'"warm_from":{_value(found.warm_from)},"problem":{_value(found.problem)}}}'
        )

    def _time_index(self, found: TimeIndexTrail | None) -> str:
        if found is None:
            return "null"
        return (
            f'{{"file":{self._name(found.file)},"slot":{_value(found.slot)},"entries":{found.entries},'
            f'"timestamp":{found.timestamp},"offset":{found.offset},"probes":{found.probes},'
            f'"warm_from":{_value(found.warm_from)},"largest_timestamp":{found.largest},'
            f'"by_mtime":{_value(found.by_mtime)},"problem":{_value(found.problem)}}}'
        )


def _value(value: object) -> str:
    if value is None:
        return "null"
    return str(value) if type(value) is int else json.dumps(value, separators=(",", ":"))
