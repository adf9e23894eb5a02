"""Committed offsets as `kafka-consumer-groups --reset-offsets --from-file` reads them."""

from __future__ import annotations

from collections.abc import Sequence

from klog.commands.groups.describe import GroupDetail


def export_rows(groups: Sequence[GroupDetail]) -> list[tuple[str | int, ...]]:
    """Return the lines: topic, partition, offset of one group; with the group before them where there are several.

    Share groups are left out: that tool does not know them.  Kafka: CsvUtils.
    """
    found = [one for one in groups if one.image.type != "share"]
    rows: list[tuple[str | int, ...]] = []
    for one in found:
        name = (one.image.group,) if len(found) > 1 else ()
        rows += [(*name, row.topic, row.partition, row.offset) for row in one.offsets if row.offset is not None]
    return rows
