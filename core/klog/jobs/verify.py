"""The job that checks whole partitions: what is found, and how much was looked at, as rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.arrow import import_pyarrow
from klog.check.facts import LogDirFacts
from klog.check.findings import KINDS, Finding
from klog.check.segment import Request
from klog.check.verify import Checked, Chosen, Totals, log_dir_facts, verify_partition
from klog.errors import KlogError
from klog.log_dir import LogDir
from klog.partition import Partition

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 4096
_TEXTS = ("topic", "file", "message", "broker", "fix")
_TOTALS = Totals._fields[1:]


class Part(NamedTuple):
    """A partition of a unit: its *number* among all that are checked, and the log dir around it, None if alone."""

    number: int
    path: str
    log_dir: str | None


class Options(NamedTuple):
    """How partitions are checked: see `klog.check.verify.verify_partition`."""

    request: Request = Request()
    chosen: Chosen | None = None


def schema() -> pa.Schema:
    """Return the columns of a row: a finding, whose *kind* is its id, or, where that is None, a partition's totals.

    Names of files may be any bytes, and so may texts that cite them.
    """
    pa = import_pyarrow()
    texts = [pa.field(name, pa.binary()) for name in _TEXTS]
    numbers = [pa.field(name, pa.int64()) for name in ("position", "offset", *_TOTALS)]
    ours = [pa.field("number", pa.int32()), pa.field("kind", pa.string()), pa.field("partition", pa.int32())]
    return pa.schema([*ours, *texts, *numbers])


def verify(unit: Sequence[Part], options: Options) -> Iterator[pa.RecordBatch]:
    """Check each partition of *unit*.  Nothing is raised for what is on the disk: that is a finding."""
    log_dirs: dict[str, tuple[LogDir, LogDirFacts]] = {}
    rows: list[dict[str, object]] = []
    for part in unit:
        checked = _checked(part, options, log_dirs)
        for finding in checked.findings:
            rows.append(_row(part.number, finding))
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows = []
        rows.append({"number": part.number, **dict(zip(_TOTALS, checked.totals[1:], strict=True))})
    if rows:
        yield _batch(rows)


def _checked(part: Part, options: Options, log_dirs: dict[str, tuple[LogDir, LogDirFacts]]) -> Checked:
    partition = Partition(part.path)
    try:
        around = None
        if part.log_dir is not None:
            if part.log_dir not in log_dirs:
                log_dir = LogDir(part.log_dir)
                log_dirs[part.log_dir] = log_dir, log_dir_facts(log_dir)
            log_dir, around = log_dirs[part.log_dir]
            partition = Partition(part.path, log_dir.checkpoints)
        return verify_partition(partition, around, options.request, chosen=options.chosen)
    except KlogError as error:
        kind = KINDS["unreadable"]
        topic, number, name = partition.topic, partition.number, partition.directory
        finding = Finding(kind, topic, number, name, None, None, str(error), kind.broker, kind.fix)
        return Checked(partition, [finding], Totals(1))


def _row(number: int, finding: Finding) -> dict[str, object]:
    row: dict[str, object] = {name: _bytes(getattr(finding, name)) for name in _TEXTS}
    row |= {"number": number, "kind": finding.id, "partition": finding.partition}
    return row | {"position": finding.position, "offset": finding.offset}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    pa = import_pyarrow()
    return pa.RecordBatch.from_pylist(rows, schema=schema())


def results(batches: Iterable[pa.RecordBatch], partitions: Sequence[Partition]) -> Iterator[Checked]:
    """Yield what came of each of *partitions* that was checked, in their order, from the rows of all units."""
    found: dict[int, list[Finding]] = {}
    totals: dict[int, Totals] = {}
    for batch in batches:
        for row in batch.to_pylist():
            if row["kind"] is not None:
                found.setdefault(row["number"], []).append(_finding(row))
            else:
                totals[row["number"]] = Totals(1, *(row[name] for name in _TOTALS))
    for number in sorted(totals):
        yield Checked(partitions[number], found.get(number, []), totals[number])


def _finding(row: dict[str, object]) -> Finding:
    texts = {name: None if (value := row[name]) is None else os.fsdecode(value) for name in _TEXTS}  # type: ignore[arg-type]  # a column of bytes
    rest = {name: row[name] for name in ("partition", "position", "offset")}
    return Finding(kind=KINDS[str(row["kind"])], **texts, **rest)  # type: ignore[arg-type]  # as the schema has them
