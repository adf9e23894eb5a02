"""Records of a dump as JSON lines or CSV whose keys and values are decoded by the schemas of a registry."""

from __future__ import annotations

from klog.commands.dump.dump_request import LogInput
from klog.commands.dump.log_lines import LineDump
from klog.kernel import Window
from klog.log.json_lines import LineStyle
from klog.log.ordered_pipeline import OrderedOutput
from klog.log.records import RecordLimit
from klog.schemas.decoded_csv import decoded_rows
from klog.schemas.decoded_rows import SchemaStyle


class DecodedLines(LineDump):
    """Makes lines of a log's windows, with decoded keys and values."""

    def __init__(self, log: LogInput, style: LineStyle, count: RecordLimit, schemas: SchemaStyle) -> None:
        super().__init__(log, style, count)
        topic, partition = log.target.origin
        self._decoded = decoded_rows(topic, partition, schemas, style)

    def _write(self, rows: Window, at: int, end: int, lane: OrderedOutput) -> None:
        """Write lines of the rows from *at* to *end*."""
        lane.flush(rows)
        for piece in self._decoded.lines(rows, at, end, self._fields, self._style):
            lane.write(piece)
