"""The trail of a lookup as JSON, one line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from klog.lookup.trail import IndexTrail, TimeIndexTrail, Trail


class Lines:
    """Makes lines about one partition: its topic and number, None where the directory's name does not tell."""

    def __init__(self, topic: str | None, partition: int | None) -> None:
        self._head = f'{{"topic":{_value(topic)},"partition":{_value(partition)}'
        self._names: dict[str | None, str] = {None: "null"}

    def of(self, trail: Trail) -> str:
        """Return *trail* as a line, without its end."""
        line = f'{self._head},"timestamp":{trail.target}' if trail.by_time else self._head
        offset = trail.offset if trail.by_time else trail.target
        line += f',"offset":{_value(offset)},"outcome":"{trail.outcome.value}","segment":{self._segment(trail)}'
        if trail.by_time:
            line += f',"time_index":{self._time_index(trail.time_index)}'
        line += f',"index":{self._index(trail.offset_index)}'
        scan, batch = trail.scan, trail.batch
        line += ',"scan":null' if scan is None else f',"scan":{{"from":{scan.position},"batches":{scan.batches}}}'
        if batch is None:
            line += ',"batch":null'
        else:
            line += (
                f',"batch":{{"position":{batch.position},"size":{batch.size},"base_offset":{batch.base_offset},'
                f'"last_offset":{batch.last_offset},"crc_holds":{_value(batch.crc_holds)},"codec":"{batch.codec}"}}'
            )
        line += f',"record":{(trail.record_json or b"null").decode()}'
        if trail.notes or trail.problems:
            return f'{line},"notes":{_value(trail.notes)},"problems":{_value(trail.problems)}}}'
        return line + ',"notes":[],"problems":[]}'

    def _name(self, file: str | None) -> str:
        if file not in self._names:
            self._names[file] = _value(file)
        return self._names[file]

    def _segment(self, trail: Trail) -> str:
        found = trail.segment
        if found is None:
            return "null"
        following = _value(found.next_base_offset)
        return (
            f'{{"file":{self._name(found.file)},"base_offset":{found.base_offset},"next_base_offset":{following},'
            f'"segments":{found.segments}}}'
        )

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
    return str(value) if type(value) is int else json.dumps(value)
