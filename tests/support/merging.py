"""Segments of a real log that become one: the new files, the plan of it, and all states on the way."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from klog.change.plan.draft import Draft, backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.model import PUT, STAGED, TRUNCATE, Plan
from klog.change.plan.replace_segments import replace_segments
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk
from klog.formats.names import SEGMENT_KINDS, FileKind, parse_file

from tests.conftest import FIXTURES, writable_copy
from tests.oracles.plain.decode import Batch, Record, scan
from tests.support.power import DeadlyDisk, KilledError

NOW = 1_795_239_019_000
ORIGINAL = FIXTURES / "compaction" / "before"
INDEX_INTERVAL = 512
_INDEXES = SEGMENT_KINDS[1:]


class Merge(NamedTuple):
    """Segments *bases* of a partition become one, of the batches that *keeps* selects.

    *overhang*: the new log ends before the last of the segments begins.
    """

    directory: str
    bases: tuple[int, ...]
    keeps: Callable[[Batch], bool]
    overhang: bool = False

    def log(self, data: Path) -> bytes:
        """Return the new log's content."""
        kept = bytearray()
        for base in self.bases:
            content = (data / self.directory / f"{base:020}.log").read_bytes()
            kept += b"".join(content[b.position : b.position + b.size] for b in batches(content) if self.keeps(b))
        return bytes(kept)

    def indexes(self, data: Path) -> dict[FileKind, bytes]:
        """Return the content of the new indexes; a transaction index only where there is something for it."""
        entries, times = _entries(self.log(data), self.bases[0])
        found = {FileKind.INDEX: entries, FileKind.TIME_INDEX: times}
        old = [data / self.directory / f"{base:020}.txnindex" for base in self.bases]
        aborted = b"".join(path.read_bytes() for path in old if path.exists())
        if aborted and self.log(data):
            found[FileKind.TXN_INDEX] = aborted
        return found

    def say(self, draft: Draft) -> None:
        """Record the changes in *draft*; the content of the log is put in pieces."""
        data = Path(draft.log_dir)
        content = self.log(data)
        last = (data / self.directory / f"{self.bases[-1]:020}.log").stat()
        pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
        log = draft.prepare(f"{self.directory}/{self.bases[0]:020}.log", pieces, modified_ns=last.st_mtime_ns)
        indexes = {kind: [content] for kind, content in self.indexes(data).items()}
        replace_segments(draft, self.directory, self.bases, log, indexes)

    def plan(self, data: Path, disk: Disk, backup: str | None = None) -> Plan:
        """Return the plan, its new files ready."""
        return plan_of([self], data, disk, backup)

    def repair(self, data: Path, disk: Disk) -> None:
        """Plan and apply, once."""
        if files_of(data / self.directory).keys() >= {f"{base:020}.log" for base in self.bases}:
            plan = self.plan(data, disk)
            if plan.actions:
                apply(plan, disk)


def plan_of(merges: Sequence[Merge], data: Path, disk: Disk, backup: str | None = None) -> Plan:
    """Return a plan of all these, one after the other, their new files ready."""
    number = plan_id("compact", NOW)
    backups = backup_places(number, [str(data)], backup)
    draft = Draft(str(data), 0, Staging(os.path.join(backups[0], STAGED), disk))
    for merge in merges:
        merge.say(draft)
    return make_plan(number, "klog compact", [str(data)], backups, [draft], NOW)


def every_second(batch: Batch) -> bool:
    """Whether a batch is kept where about every second is."""
    return batch.base_offset % 2 == 0


MERGES = {
    "three of six": Merge("idempotent-0", (45, 80, 100), every_second),
    "the first ones": Merge("grouping-0", (0, 52, 100, 148), lambda batch: batch.base_offset % 3 == 0),
    "with transactions": Merge("tx-later-0", (0, 22, 44), lambda batch: True),
    "nothing of the last ones": Merge("idempotent-0", (0, 45, 80), lambda batch: batch.base_offset < 30, True),
    "nothing at all": Merge("tx-later-0", (22, 44, 66), lambda batch: False, True),
    "one alone": Merge("idempotent-0", (45,), every_second),
    "the first as it was": Merge("idempotent-0", (45, 80, 100), lambda batch: batch.base_offset < 80, True),
}


def only(directory: str, target: Path) -> Path:
    """Return a log dir in which that partition is the only one, after a clean stop."""
    data = writable_copy(ORIGINAL, target)
    for path in data.iterdir():
        if path.is_dir() and path.name != directory:
            for inside in path.iterdir():
                inside.unlink()
            path.rmdir()
    topic, _, number = directory.rpartition("-")
    for path in data.glob("*-checkpoint"):
        lines = [line for line in path.read_text().splitlines()[2:] if line.split()[:2] == [topic, number]]
        path.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
    return data


def batches(log: bytes) -> Iterator[Batch]:
    for batch in scan(log):
        assert isinstance(batch, Batch)
        yield batch


def _entries(log: bytes, base: int) -> tuple[bytes, bytes]:
    """Return the entries of both indexes.  Kafka: LogSegment.append, at a roll onlyTimeIndexFilledUp."""
    entries, times, largest, since = bytearray(), bytearray(), (-1, base), 0
    last = largest
    for batch in batches(log):
        largest = max(largest, (batch.max_timestamp, batch.last_offset), key=lambda pair: pair[0])
        if since > INDEX_INTERVAL:
            entries += struct.pack(">ii", batch.last_offset - base, batch.position)
            since = 0
            if largest[0] > last[0]:
                last = largest
                times += struct.pack(">qi", last[0], last[1] - base)
        since += batch.size
    if largest[0] > last[0]:
        times += struct.pack(">qi", largest[0], largest[1] - base)
    return bytes(entries), bytes(times)


# leftovers of an interrupted plan

Files = dict[str, bytes]


def files_of(data: Path) -> Files:
    """Return the content of every file, by its path in the log dir."""
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file()}


class Between(NamedTuple):
    """A moment between two actions: the places of those that are *done*, and the *files* then."""

    done: frozenset[int]
    files: Files


def states(plan: Plan, before: Files) -> Iterator[Between]:
    """Yield every state in which the log dir may be between two actions, the first and the last too.

    *plan* is not yet carried out, but its new files are ready.  Indexes that are put in a row may appear in any order.
    """
    now = Between(frozenset(), before)
    yield now
    for group in _groups(plan):
        for count in range(1, len(group) + 1):
            for some in combinations(group, count):
                files = dict(now.files)
                for place in some:
                    _do(plan, place, files)
                yield Between(now.done.union(some), files)
        now = Between(now.done.union(group), files)


def _groups(plan: Plan) -> list[list[int]]:
    groups: list[list[int]] = []
    was_index = False
    for place, action in enumerate(plan.actions):
        is_index = action.do == PUT and parse_file(os.path.basename(action.file)).kind in _INDEXES
        if not (is_index and was_index):
            groups.append([])
        groups[-1].append(place)
        was_index = is_index
    return groups


def _do(plan: Plan, place: int, files: Files) -> None:
    action = plan.actions[place]
    if action.do == PUT:
        files[action.file] = Path(plan.staged(0), str(action.source)).read_bytes()
    elif action.do == TRUNCATE:
        assert action.after is not None
        files[action.file] = files[action.file][: action.after.size]
    else:
        del files[action.file]


def write(files: Files, data: Path) -> None:
    """Make *data* a log dir of these files."""
    for name, content in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)


def records(partition: Path) -> list[Record]:
    """Return the records of a partition as its segments follow each other."""
    logs = sorted(partition.glob("*.log"))
    return [record for log in logs for batch in batches(log.read_bytes()) for record in batch.records]


def killed(data: Path, work: Callable[[Disk], object], at: int) -> bool:
    """Let *work* continue until call number *at*; return whether it reached that."""
    try:
        work(DeadlyDisk(data.parent, at))
    except KilledError:
        return True
    return False
