"""Exports all records, or the last value of each key, by topic and partition, from many tasks into one directory.

A piece is one or several slices; its files have the offsets of its records in their names, and the manifest has
all names.

For the last values a partition is read twice: for the last offset of each key, and for the records at these offsets.
If the keys do not fit into their memory, they are divided by their digests, and the partition is read for each part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from klog.base.progress import Sink
from klog.data_dir.disk.directory_tree import FencedDisk
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.output_commit import Facts, JobOutput, OutputAttempt, lock_target
from klog.jobs.output_files import FILE_BYTES, Format, OutputFiles
from klog.jobs.runner import Job, Runner, TaskResult, collect
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import OPENING_BYTES, SPLIT_BYTES, TASK_BYTES, LogSlice, slice_partition
from klog.kernel import OffsetMap
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter
from klog.partition.transactions.isolation import Isolation

if TYPE_CHECKING:
    from klog.jobs.schema_output import ExportSchemas, SchemaOutput

MANIFEST = "_klog_manifest.json"
"""Spark ignores files whose names begin with an underscore."""


_LEAST_DECODED_BYTES = 4 << 20


class ExportTask(NamedTuple):
    """The content of one piece: *slices*, those of a partition next to each other."""

    number: int
    slices: tuple[LogSlice, ...]

    @property
    def bytes(self) -> int:
        """The bytes to read."""
        return sum(part.bytes for part in self.slices)


class ExportOptions(NamedTuple):
    """*run*: the hidden directory of the output.  *wanted*: without a limit.  *file_bytes*: files end above that.

    *map_memory*: bytes for the keys of a table of latest values: with these a worker stays below 250 MB.
    *schemas*: how keys and values are decoded, None for bytes as they are.
    """

    run: str
    form: Format = "parquet"
    wanted: RecordFilter = RecordFilter()
    file_bytes: int = FILE_BYTES
    max_batch_bytes: int = MAX_BATCH_BYTES
    map_memory: int = 48 << 20
    schemas: ExportSchemas | None = None


def plan_tasks(
    partitions: Iterable[Partition],
    wanted: RecordFilter,
    isolation: Isolation,
    split_bytes: int = SPLIT_BYTES,
    piece_bytes: int = TASK_BYTES,
    *,
    whole: bool = False,
) -> list[ExportTask]:
    """Return pieces of about *piece_bytes*, small slices together, in the order of topics, partitions and offsets.

    *whole*: no partition in two pieces.  Raises nothing for content.
    """
    made: list[ExportTask] = []
    waiting: list[LogSlice] = []
    weight = 0
    for partition in sorted(partitions, key=lambda one: (one.topic or "", one.number or 0, one.path)):
        # Tasks may run elsewhere, with another working directory.
        there = Partition(os.path.abspath(partition.path), partition.checkpoints)
        cut = slice_partition(there, split_bytes, wanted, isolation)
        for some in [cut] if whole else [[part] for part in cut]:
            waiting += some
            weight += sum(part.bytes + OPENING_BYTES for part in some)
            if waiting and weight >= piece_bytes:
                made.append(ExportTask(len(made), tuple(waiting)))
                waiting, weight = [], 0
    return [*made, ExportTask(len(made), tuple(waiting))] if waiting else made


def begin(to: str, job: str, pieces: Sequence[NamedTuple], options: NamedTuple, disk: Disk) -> JobOutput:
    """Return where the files are going to be; what an earlier run of the same *job* has left counts.

    *pieces* and *options* are all that decides what is in the files.  Raises UsageError, OSError.
    """
    from klog import __version__

    what = {"job": job, "version": __version__, "options": repr(options[1:]), "pieces": _digest(pieces)}
    return JobOutput(to, what, disk)


def _digest(pieces: Sequence[NamedTuple]) -> str:
    import hashlib

    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(repr(piece).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def export(unit: Sequence[ExportTask], options: ExportOptions) -> Iterator[TaskResult]:
    """Write all records of the pieces of *unit*; yield a result `piece` of each.

    Raises OSError when writing fails; what is wrong with what is read is among the facts of the piece.
    """
    scan = SliceScan(options.wanted, options.max_batch_bytes)

    def write(piece: ExportTask, tables: OutputFiles) -> Iterator[tuple[LogSlice, Damage]]:
        for part in piece.slices:
            tables.begin(part)
            for found in scan.read(part):
                if isinstance(found, Damage):
                    tables.damage(found)
                    yield part, found
                else:
                    yield from [(part, damage) for damage in tables.add(found)]

    return write_in_attempts(unit, options, write)


Write = Callable[[ExportTask, OutputFiles], Iterable[tuple[LogSlice, Damage]]]
"""Writes a piece; damage may be reported several times."""


def write_in_attempts(unit: Sequence[ExportTask], options: ExportOptions, write: Write) -> Iterator[TaskResult]:
    """Write the pieces of *unit*, each in an attempt of its own; yield a result `piece` of each.  Raises OSError."""
    for piece in unit:
        with OutputAttempt(options.run, piece.number) as attempt:
            if not attempt.is_done:
                schemas = _schema_output(options)
                style = options.form, options.file_bytes
                with OutputFiles(attempt.path, piece.number, *style, attempt.disk, schemas) as tables:
                    found = dict.fromkeys(write(piece, tables))
                facts: Facts = {"files": tables.files}
                facts["damage"] = [damage_facts(part, damage) for part, damage in found]
                if schemas is not None:
                    facts["undecoded"] = schemas.tally.facts()
                attempt.commit(tables.paths, facts)
        yield TaskResult("piece", b"", piece.number)


def _schema_output(options: ExportOptions) -> SchemaOutput | None:
    if options.schemas is None:
        return None
    from klog.jobs.schema_output import SchemaOutput

    return SchemaOutput(options.schemas)


def export_records(
    partitions: Iterable[Partition], to: str, options: ExportOptions, isolation: Isolation, runner: Runner, sink: Sink
) -> Facts:
    """Write the records of *partitions* as files below *to*; return the manifest, which is also written there.

    Each record is written once, even if tasks fail, are killed or run twice.  After a failure the same call continues
    with what is missing.  *to* and the partitions' paths must lead to the same places wherever tasks run.

    Raises UsageError if *to* has other content, LockedError if another run writes there, KlogError, OSError.
    """
    partitions = list(partitions)
    pieces = plan_tasks(partitions, options.wanted, isolation)
    if options.schemas is not None:  # decoding takes longer than reading: there is a piece for each worker
        size = -(-sum(piece.bytes for piece in pieces) // max(runner.workers, 1))
        size = min(max(size, _LEAST_DECODED_BYTES), TASK_BYTES)
        pieces = plan_tasks(partitions, options.wanted, isolation, min(size, SPLIT_BYTES), size)
    if options.schemas is not None and options.form == "parquet":
        from klog.jobs.schema_output import choose_columns

        given = options.schemas, options.wanted, options.max_batch_bytes
        options = options._replace(schemas=choose_columns(pieces, given, runner, sink))
    return write_all("export", export, pieces, to, options, runner, sink)


def write_all(
    name: str,
    job: Callable[[Sequence[ExportTask], ExportOptions], Iterator[TaskResult]],
    pieces: Sequence[ExportTask],
    to: str,
    options: ExportOptions,
    runner: Runner,
    sink: Sink,
) -> Facts:
    """Write *pieces* by *job*, which has a *name* in the output: see `export_records`."""
    disk = shared_disk()
    with lock_target(to, disk):
        output = begin(to, name, pieces, options, disk)
        left = [piece for piece in pieces if piece.number not in output.done]
        sizes = [piece.bytes for piece in left]
        collect(runner, Job(job, [[piece] for piece in left], options._replace(run=output.run), sizes), sink)
        return finish(output, len(pieces))


def shared_disk() -> Disk:
    """Return a disk whose files and directories are for all whom the umask lets."""
    return FencedDisk("/", shared=True)


def damage_facts(part: LogSlice, damage: Damage) -> Facts:
    """Return what is said of *damage* in a result."""
    place = damage.place
    facts: Facts = {"topic": part.topic, "partition": part.partition, "file": place.file}
    return facts | {"position": place.position, "offset": place.offset, "message": str(damage)}


def finish(output: JobOutput, pieces: int) -> Facts:
    """Give the files their names, write the manifest and return it: each file, and each damage that cost records.

    Raises KlogError where a piece is missing, OSError.
    """
    results = output.results(pieces)
    moves = [
        (os.path.join(output.piece(number), file["name"]), file["file"])
        for number, result in enumerate(results)
        for file in result["files"]
    ]
    files = [{name: one[name] for name in one if name != "name"} for result in results for one in result["files"]]
    files.sort(key=lambda one: (one["topic"] or "", one["partition"] or 0, one["file"]))
    damage = [one for result in results for one in result["damage"]]
    manifest: Facts = {"files": files, "damage": damage, "records": sum(one["records"] for one in files)}
    undecoded = [result["undecoded"] for result in results if "undecoded" in result]
    if undecoded:
        manifest["undecoded"] = _all_undecoded(undecoded)
    output.finish(moves, {MANIFEST: json.dumps(manifest, indent=1).encode()})
    return manifest


def _all_undecoded(facts: Iterable[Facts]) -> Facts:
    from klog.schemas.error_tally import ErrorTally

    tally = ErrorTally()
    for one in facts:
        tally.merge(one)
    return tally.facts()


_MOST_PARTS = 64
"""At once: the beginning of a log may have far more keys than the rest."""


def export_latest_values(
    partitions: Iterable[Partition], to: str, options: ExportOptions, runner: Runner, sink: Sink
) -> Facts:
    """Write the last value of each key of *partitions* as files below *to*: the table of a read_committed consumer.

    See `klog.jobs.export.export_records` for everything else.
    """
    pieces = plan_tasks(partitions, options.wanted, "read_committed", whole=True)
    return write_all("latest", write_latest_values, pieces, to, options, runner, sink)


def write_latest_values(unit: Sequence[ExportTask], options: ExportOptions) -> Iterator[TaskResult]:
    """Write the last record of each key of the pieces of *unit*, but for those without a value.

    Pieces are of whole partitions.  Yields a result `piece` of each.  Raises OSError when writing fails.
    """
    scan = SliceScan(options.wanted, options.max_batch_bytes)
    offsets = OffsetMap(options.map_memory)

    def write(piece: ExportTask, tables: OutputFiles) -> Iterator[tuple[LogSlice, Damage]]:
        for _, slices in groupby(piece.slices, lambda part: os.path.dirname(part.path)):
            yield from _latest(list(slices), scan, offsets, tables)

    return write_in_attempts(unit, options, write)


def _latest(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap, tables: OutputFiles
) -> Iterator[tuple[LogSlice, Damage]]:
    """Write the table of one partition."""
    waiting = [(0, 1)]
    while waiting:
        part, parts = waiting.pop()
        offsets.clear(max(slices[0].base, 0), part, parts)
        more = yield from _fill(slices, scan, offsets)
        if more > 1:
            waiting += [(part + k * parts, parts * more) for k in reversed(range(more))]
        else:
            yield from _write(slices, scan, offsets, tables)


def _fill(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap
) -> Generator[tuple[LogSlice, Damage], None, int]:
    """Fill the map; return 1 when all keys are in it, else into how many parts they are better divided."""
    read = 0
    for part in slices:
        for found in scan.read(part):
            if isinstance(found, Damage):
                yield part, found
            elif (filled := offsets.fill(found, 0, 0)) < found.records:
                done = read + scan.position - part.start + found.size * filled // found.records
                return min(max(2, -(-sum(one.bytes for one in slices) // max(done, 1))), _MOST_PARTS)
        read += part.bytes
    return 1


def _write(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap, tables: OutputFiles
) -> Iterator[tuple[LogSlice, Damage]]:
    """Write the records that the map has."""
    for part in slices:
        tables.begin(part)
        for found in scan.read(part):
            if isinstance(found, Damage):
                yield part, found
            elif offsets.keep_latest(found, False):
                yield from [(part, damage) for damage in tables.add(found)]
