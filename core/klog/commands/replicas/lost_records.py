"""The records that would be lost if a given replica led, as JSON lines, with their holders."""

from __future__ import annotations

import json
from collections.abc import Callable

from klog.commands.replicas.comparison import HeldRecord, LostRecordSink
from klog.commands.replicas.diff import PartitionDiff, ReplicaDiffer
from klog.commands.replicas.disks import BrokerCopies
from klog.log.json_lines import RecordOrigin

Write = Callable[[bytes], object]


class PartitionRescue:
    """Writes the records of a partition that would be lost if *leader* led, in the order of offsets, then of holders.

    `committed`: whether it lies below the highest high watermark of any copy on disk, null without one.
    """

    def __init__(self, differ: ReplicaDiffer, write: Write) -> None:
        self._differ, self._write = differ, write
        self.too_large: list[tuple[str, int, int]] = []
        """Topic, partition and offset of records that are not written, because their lines would be too large."""

    def rescue(self, found: BrokerCopies, leader: int) -> PartitionDiff:
        """Write the lines; return the result of the comparison."""
        known = [copy.partition.high_watermark for copy in found.copies.values()]
        watermark = max((one for one in known if one is not None), default=None)
        waiting: list[tuple[int, HeldRecord]] = []

        def flush() -> None:
            for offset, held in sorted(waiting, key=lambda one: sorted(one[1].nodes)):
                if held.line:
                    self._write(_finished(offset, held, watermark))
                else:
                    self.too_large.append((found.topic, found.number, offset))
            waiting.clear()

        def take(offset: int, held: HeldRecord) -> None:
            if waiting and waiting[-1][0] != offset:
                flush()
            waiting.append((offset, held))

        origin = RecordOrigin("", found.topic, found.number).json()
        diff = self._differ.diff(found, LostRecordSink(leader, origin, take))
        flush()
        return diff


def _finished(offset: int, held: HeldRecord, watermark: int | None) -> bytes:
    """Return the line with who holds the record."""
    committed = "null" if watermark is None else "true" if offset < watermark else "false"
    nodes = json.dumps(sorted(held.nodes), separators=(",", ":"))
    return held.line.rstrip().removesuffix(b"}") + f',"committed":{committed},"held_by":{nodes}}}\n'.encode()
