"""Files other than logs as JSON lines, one object for each entry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from klog.base.errors import ExitCode, NotKafkaError, UnsupportedError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_request import CSV, DumpRequest, DumpTarget
from klog.data_dir.selection import EXPECTED
from klog.formats import checkpoint, properties
from klog.formats.checkpoint import Checkpoint, Malformed
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, parse_file
from klog.formats.snapshot import read_snapshot
from klog.kernel import crc32c

_LAYOUTS = {"index": OFFSET_ENTRY, "timeindex": TIME_ENTRY, "txnindex": ABORTED_TXN}
_LARGEST = 64 << 20
Row = dict[str, object]


def value_lines(target: DumpTarget, kind: str | None, request: DumpRequest, sink: Sink) -> int:
    """Write the content of a file that is no log; return the exit code.

    Raises NotKafkaError for a file of no known kind, UnsupportedError for CSV.
    """
    file = parse_file(os.path.basename(target.shown))
    if kind is None and file.kind is FileKind.OTHER:
        raise NotKafkaError(f"{target.shown}: not a Kafka file by its name (--as says what it is); {EXPECTED}")
    if request.output == CSV:
        raise UnsupportedError(f"{target.shown}: CSV is for logs; --output jsonl shows it")
    with ReadOnlyFile(target.path) as source:
        if source.size > _LARGEST and kind not in _LAYOUTS:
            raise UnsupportedError(f"{target.shown}: {source.size} bytes, more than such a file can have")
        rows = (
            _entries(source, kind, file.offset or 0)
            if kind in _LAYOUTS
            else _small(source.read(0, source.size), kind, file.kind)
        )
        code = ExitCode.CLEAN
        for row in rows:
            if "damage" in row:
                code = ExitCode.PROBLEMS_LEFT
                row |= {"file": target.shown}
                sink.report(f"{target.shown}: {row['damage']}")
            sink.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return code


def _entries(source: ReadOnlyFile, kind: str, base_offset: int) -> Iterator[Row]:
    """Yield the entries of an index, offsets made absolute, up to its tail of zeros."""
    layout: Layout = _LAYOUTS[kind]
    step = layout.size * 8192
    slot = 0
    for start in range(0, source.size, step):
        for values in layout.read_all(source.read(start, step)):
            if not any(values) and slot:
                return  # preallocated: nothing but zeros follows
            slot += 1
            row: Row = dict(zip(layout.names, values, strict=True))
            if "relative_offset" in row:
                row = {"offset": base_offset + values[layout.names.index("relative_offset")]} | row
                del row["relative_offset"]
            yield row
    if source.size % layout.size:
        yield {
            "damage": f"{source.size % layout.size} bytes left over: {source.size} is not a multiple of {layout.size}"
        }


def _small(content: bytes, kind: str | None, file: FileKind) -> Iterator[Row]:
    if kind == "snapshot":
        snapshot = read_snapshot(content, crc32c)
        if snapshot.problem:
            yield {"damage": snapshot.problem}
        else:
            yield from (producer._asdict() for producer in snapshot.producers)
    elif file in ROOT_CHECKPOINTS:
        yield from _checkpoint(checkpoint.read_offsets(content))
    elif file is FileKind.LEADER_EPOCHS:
        yield from _checkpoint(checkpoint.read_epochs(content))
    elif file is FileKind.PARTITION_METADATA:
        yield _object(checkpoint.read_partition_metadata(content))
    elif file is FileKind.META_PROPERTIES:
        found = properties.read_properties(content)
        yield _object(found) if isinstance(found, Malformed) else dict(found)
    elif file is FileKind.QUORUM_STATE:
        yield _object(properties.read_quorum_state(content))
    elif file is FileKind.CLEAN_SHUTDOWN:
        yield _object(properties.read_clean_shutdown(content))
    # a lock file is empty


def _checkpoint(read: Checkpoint) -> Iterator[Row]:  # type: ignore[type-arg]
    yield from (entry._asdict() for entry in read.entries)
    if read.malformed:
        yield {"damage": str(read.malformed)}


def _object(value: Any) -> Row:
    if isinstance(value, Malformed):
        return {"damage": str(value)}
    row: Row = value._asdict()
    return row
