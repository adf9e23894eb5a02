"""Pieces of fixture data, jobs over them, and the results."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from klog.commands.dump.dump_request import JSON_LINES, DumpRequest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.names import PartitionState
from klog.jobs import export as job
from klog.jobs.export import MANIFEST, ExportOptions, ExportTask, write_latest_values
from klog.jobs.output_commit import JobOutput
from klog.jobs.slices import SPLIT_BYTES, Isolation, LogSlice, slice_partition
from klog.log.records import RecordFilter

from tests.commands.dump.sinks import dump
from tests.support.power import HastyDisk

DISK = HastyDisk()
Object = dict[str, Any]


def partitions(*log_dirs: Path) -> list[Partition]:
    return [
        one
        for path in log_dirs
        for one in LogDir(str(path)).partitions
        if one.state is PartitionState.CURRENT and one.topic != "__cluster_metadata"
    ]


def parts_of(
    found: Sequence[Partition], split_bytes: int = SPLIT_BYTES, isolation: Isolation = "read_uncommitted"
) -> list[list[LogSlice]]:
    """Return the slices of each partition."""
    return [slice_partition(one, split_bytes, isolation=isolation) for one in found]


def pieces_of(parts: Sequence[Sequence[LogSlice]]) -> list[ExportTask]:
    return [ExportTask(number, tuple(some)) for number, some in enumerate(some for some in parts if some)]


class Export:
    """A job, step by step; *whole*: of the latest values."""

    def __init__(self, to: Path, pieces: Sequence[ExportTask], *, table: bool = False, **options: Any) -> None:
        self.to, self.pieces = to, pieces
        self.options = ExportOptions("", **options)
        self._do = write_latest_values if table else job.export
        self.output: JobOutput = job.begin(str(to), "latest" if table else "export", pieces, self.options, DISK)
        self.options = self.options._replace(run=self.output.run)

    def start(self, pieces: Sequence[ExportTask] | None = None) -> Iterator[Any]:
        """Return a task that does *pieces*, one a step."""
        return self._do(self.pieces if pieces is None else pieces, self.options)

    def do(self, pieces: Sequence[ExportTask] | None = None) -> None:
        for _ in self.start(pieces):
            pass

    def finish(self) -> Object:
        manifest = job.finish(self.output, len(self.pieces))
        assert json.loads((self.to / MANIFEST).read_bytes()) == manifest
        written = {str(path.relative_to(self.to)): path.stat().st_size for path in self.to.rglob("*") if path.is_file()}
        assert written.pop(MANIFEST)
        assert written == {file["file"]: file["bytes"] for file in manifest["files"]}
        return manifest

    def run(self) -> Object:
        self.do()
        return self.finish()


def dumped(partition: Partition, *, committed: bool = False) -> list[Object]:
    """Return what `klog dump --output jsonl --no-control` has of a partition from its log's start on, damage too."""
    wanted = RecordFilter(partition.log_start_offset or 0, controls=False)
    request = DumpRequest(output=JSON_LINES, wanted=wanted, committed=committed)
    return dump([partition.path], request)[1].objects


def bytes_of(line: Object, name: str) -> bytes | None:
    """Return the key or the value of a line."""
    if f"{name}_base64" in line:
        return base64.b64decode(line[f"{name}_base64"])
    text = line.get(name)
    return None if text is None else text.encode()


def lines(folder: Path) -> list[Object]:
    """Return the objects in the files of a topic-partition, in the order of their names."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_bytes().splitlines()]


def rows(folder: Path) -> list[Object]:
    """Return the rows of the Parquet files of a topic-partition, in the order of the files' names."""
    import pyarrow.parquet as pq

    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]


def folder_of(to: Path, partition: Partition) -> Path:
    return to / f"topic={partition.topic}" / f"partition={partition.number}"


def names(to: Path) -> list[str]:
    return sorted(os.listdir(to))
