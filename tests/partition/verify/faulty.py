"""Log dirs that show a finding each, by its id: for tests of the advice about it."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from klog.cluster.metadata.metadata_image import TOPIC_RESOURCE
from klog.formats.producer_snapshot import read_snapshot, write_snapshot
from klog.kernel import crc32c
from klog.log.segment import MAX_SEGMENT_BYTES, Batch, Segment

from tests.conftest import FIXTURES, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS
from tests.partition.verify import strange
from tests.partition.verify.partitions import Damageable, flipped
from tests.partition.verify.test_matrix import CHANGES, INDEXES, NAMES, PARTITION, SEGMENTS, Change
from tests.support.metadata_logs import MetadataLog, config, topic

Maker = Callable[[Path], object]
"""Makes a log dir at a path."""

AWAY = "0123456789abcdef0123456789abcdef"
PLAIN = f"plain-1/{0:020}.log"
RECOVERY_POINTS, HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
LOG_STARTS, CLEANER_OFFSETS = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"
METADATA = "version: 0\ntopic_id: " + "B" * 22
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def made(path: Path, *, partition: str = "orders-0", compacted: bool = False, **logs: bytes) -> Path:
    """Make a log dir with a partition of these logs, by base offset (`_0`), as a KRaft broker has it; return that."""
    folder = path / partition
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "partition.metadata").write_text(METADATA)
    (path / "meta.properties").write_text("version=1\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\ncluster.id=x\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for base, content in logs.items():
        (folder / f"{int(base[1:]):020}.log").write_bytes(content)
    if compacted:
        topic, _, number = partition.rpartition("-")
        (path / CLEANER_OFFSETS).write_text(f"0\n1\n{topic} {number} 1\n")
    return folder


def indexed(path: Path) -> None:
    """Give the partitions of a log dir indexes of their logs, so that these are not found missing."""
    from klog.base.progress import Silence
    from klog.data_dir.partition import Partition
    from klog.partition.verify.segment_pass import NO_NEXT, IndexSettings, SurveyOptions, survey_segment

    for folder in sorted(one for one in path.iterdir() if one.is_dir()):
        partition = Partition(str(folder))
        for files in partition.segments:
            facts = survey_segment(partition, files, NO_NEXT, SurveyOptions(build=IndexSettings()), Silence(), None)
            assert facts.builder is not None
            (folder / f"{files.base_offset:020}.index").write_bytes(facts.builder.offset_entries)
            (folder / f"{files.base_offset:020}.timeindex").write_bytes(facts.builder.time_entries)


def logs_of(**logs: bytes) -> Maker:
    """Return a maker of a partition of these logs, with indexes."""

    def make(path: Path) -> None:
        made(path, **logs)
        indexed(path)

    return make


def one_log(*parts: bytes) -> Maker:
    return logs_of(_0=b"".join(parts))


def in_compacted(*parts: bytes) -> Maker:
    def make(path: Path) -> None:
        made(path, compacted=True, _0=b"".join(parts))
        indexed(path)

    return make


def of(*partitions: str, clean: bool = True) -> Callable[[Path], Damageable]:
    return lambda path: Damageable(path, *partitions, clean=clean)


def changed(file: str, change: Callable[[bytearray], bytes | bytearray | None], *, clean: bool = True) -> Maker:
    """Return a maker of the partition of a file of fixtures/modern, in which that file is changed."""
    return lambda path: of(file.split("/")[0], clean=clean)(path).change(file, change)


def with_text(partition: str, file: str, text: str | None) -> Maker:
    """Return a maker of a partition of fixtures/modern in whose log dir a file contains *text*; None: it is missing."""

    def make(path: Path) -> None:
        of(partition)(path)
        (path / file).unlink(missing_ok=True)
        if text is not None:
            (path / file).write_text(text)

    return make


def at_batch(damage: Change, segment: str, which: int | float, *, compacted: bool = False) -> Maker:
    """Return a maker of damage to a batch of a segment of a producer's partition: by its number, or a share of them."""

    def make(path: Path) -> None:
        of(PARTITION)(path)
        log = sorted((path / PARTITION).glob("*.log"))[SEGMENTS[segment]]
        batches = [one for one in Segment(str(log)).batches() if isinstance(one, Batch)]
        data = bytearray(log.read_bytes())
        damage(data, batches[int(which * len(batches)) if isinstance(which, float) else which])
        log.write_bytes(data)
        if compacted:
            (path / CLEANER_OFFSETS).write_text("0\n1\nidempotent 0 300\n")

    return make


def everywhere(change: str) -> dict[str, Maker]:
    """Return makers of damage of a kind at the start, in the middle and at the end of segments."""
    damage, _ = CHANGES[change]
    # At the end of a segment most of them are a tail.
    places = (0, 0.5, -1) if damage in (CHANGES["payload"][0], CHANGES["stored crc"][0]) else (0, 0.5)
    makers: dict[str, Maker] = {
        f"{change}, {segment} segment, batch {which}": at_batch(damage, segment, which)
        for segment in SEGMENTS
        for which in places
    }
    makers[f"{change}, compacted"] = at_batch(damage, "middle", 0.5, compacted=True)
    return makers


def index(change: str, segments: Sequence[str] = tuple(SEGMENTS), *, in_broken: bool = True) -> dict[str, Maker]:
    """Return makers of damage to an index of *segments*; *in_broken*: and beside damage in its log."""
    damage, suffix, _ = INDEXES[change]

    def make(segment: str, *, broken: bool) -> Maker:
        def maker(path: Path) -> None:
            damageable = of(PARTITION)(path)
            log = sorted((path / PARTITION).glob("*.log"))[SEGMENTS[segment]]
            damageable.change(f"{PARTITION}/{log.stem}.{suffix}", damage)
            if broken:
                damageable.change(f"{PARTITION}/{log.name}", flipped(100))

        return maker

    makers = {f"{change}, {segment} segment": make(segment, broken=False) for segment in segments}
    if in_broken:
        makers |= {f"{change}, broken {segment} segment": make(segment, broken=True) for segment in segments}
    return makers


def txn_index(change: Callable[[bytearray], bytes | bytearray | None], base: int = 138) -> Maker:
    return changed(f"tx-0/{base:020}.txnindex", change)


def named(name: str) -> Maker:
    """Return a maker of something wrong with a name or a small file."""

    def make(path: Path) -> None:
        of(PARTITION)(path)
        NAMES[name][0](path)

    return make


def aside(make: Maker, state: str) -> Maker:
    """Return a maker of the same with every partition being deleted, moved in, or set aside."""

    def maker(path: Path) -> None:
        make(path)
        for folder in sorted(one for one in path.iterdir() if one.is_dir()):
            folder.rename(folder.with_name(f"{folder.name}.{AWAY}-{state}"))

    return maker


def copied(fixture: str) -> Maker:
    return lambda path: writable_copy(FIXTURES / fixture, path)


def between(one: Callable[[int], bytes]) -> dict[str, Maker]:
    """Return makers of a strange batch of three offsets first, between sound ones, last, and alone."""
    return {
        "between sound ones": one_log(strange.rows(0), one(10), strange.rows(13)),
        "last": one_log(strange.rows(0), one(10)),
        "alone": one_log(one(0)),
        "before the last segment": logs_of(_0=strange.rows(0) + one(10), _13=strange.rows(13)),
        "compacted": in_compacted(strange.rows(0), one(10), strange.rows(13)),
        "beside damage": one_log(strange.rows(0), one(10), strange.broken(strange.rows(13)), strange.rows(23)),
    }


def oversized(path: Path) -> None:
    logs_of(_0=strange.rows(0))(path)
    os.truncate(path / f"orders-0/{0:020}.log", MAX_SEGMENT_BYTES + 1)


def snapshot_of(change: Callable[[Path], object]) -> Maker:
    def make(path: Path) -> None:
        of(PARTITION)(path)
        change(path / PARTITION)

    return make


def swapped(path: Path) -> None:
    """A cleaned segment that waits to take the place of the one it was made from."""
    of(PARTITION)(path)
    for file in (path / PARTITION).glob(f"{110:020}.*"):
        if file.suffix != ".snapshot":
            shutil.copyfile(file, f"{file}.swap")


def lone(path: Path) -> None:
    """A partition in a directory that is no log dir."""
    of("plain-1")(path)
    for file in [one for one in path.iterdir() if one.is_file()]:
        file.unlink()
    log = path / PLAIN
    log.write_bytes(log.read_bytes()[:-10])


def metadata_torn(path: Path) -> None:
    of("__cluster_metadata-0", "plain-1")(path)
    log = sorted((path / "__cluster_metadata-0").glob("*.log"))[-1]
    log.write_bytes(log.read_bytes()[:-10])


def metadata_flipped(path: Path) -> None:
    of("__cluster_metadata-0")(path)
    log = sorted((path / "__cluster_metadata-0").glob("*.log"))[0]
    log.write_bytes(bytes(flipped(200)(bytearray(log.read_bytes()))))


def many_damages(path: Path) -> None:
    parts = b""
    for at in range(0, 2400, 2):
        parts += strange.broken(strange.rows(at, 1)) + strange.rows(at + 1, 1)
    logs_of(_0=parts)(path)


def entry(topic: str, number: int, offset: int) -> str:
    return f"0\n1\n{topic} {number} {offset}\n"


def with_bytes(name: str, content: bytes) -> Maker:
    """Return a maker of a log dir in which a checkpoint has this content."""

    def make(path: Path) -> None:
        of(PARTITION)(path)
        (path / name).write_bytes(content)

    return make


def with_flip(make: Maker, file: str) -> Maker:
    """Return a maker of the same with a flipped bit in a log."""

    def maker(path: Path) -> None:
        make(path)
        (path / file).write_bytes(flipped(100)(bytearray((path / file).read_bytes())))

    return maker


def missing(path: Path) -> None:
    """Offsets are missing in a topic that is known not to be compacted."""
    metadata = MetadataLog(path)
    metadata.add(topic("orders", 1), config(TOPIC_RESOURCE, "orders", "cleanup.policy", "delete"))
    made(path, _0=strange.rows(0) + strange.rows(15))
    (path / "orders-0/partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
    indexed(path)


def beyond(data: bytearray) -> bytes:
    """Return an offset index with an entry for a position that the log does not have."""
    return bytes(data) + struct.pack(">ii", struct.unpack(">i", data[-8:-4])[0] + 1, 1 << 30)


def time_beyond(data: bytearray) -> bytes:
    """Return a time index whose last entry is about an offset that the log does not have."""
    at, relative = struct.unpack(">qi", data[-12:])
    return bytes(data) + struct.pack(">qi", at + 1, relative + 5000)


def earlier(data: bytearray) -> bytes:
    """Return a time index whose last entry is about a later offset with a smaller time than it had."""
    at, relative = struct.unpack(">qi", data[-12:])
    return bytes(data[:-12]) + struct.pack(">qi", at - 1, relative)


def sparse(path: Path) -> None:
    """A log of some megabytes with an index of one entry."""
    made(path, _0=b"".join(batch([Record(at, MS, b"k", bytes(1 << 20))]) for at in range(8)))
    indexed(path)
    index = path / f"orders-0/{0:020}.index"
    index.write_bytes(index.read_bytes()[:8])


def as_snapshot(folder: Path, offset: int, source: int) -> None:
    """Report the producers of one offset for another."""
    shutil.copyfile(folder / f"{source:020}.snapshot", folder / f"{offset:020}.snapshot")


def other_sequence(folder: Path) -> None:
    """A snapshot of the end has, with a good checksum, an older state of a producer."""
    path = folder / f"{800:020}.snapshot"
    found = read_snapshot(path.read_bytes(), crc32c)
    producers = tuple(one._replace(last_sequence=one.last_sequence - 1) for one in found.producers)
    path.write_bytes(write_snapshot(producers, crc32c))


def other_transaction(path: Path) -> None:
    """A snapshot has an open transaction of a producer, and the log has none."""
    of("tx-0")(path)
    snapshot = path / f"tx-0/{648:020}.snapshot"
    found = read_snapshot(snapshot.read_bytes(), crc32c)
    producers = tuple(one._replace(current_txn_first_offset=640) for one in found.producers)
    snapshot.write_bytes(write_snapshot(producers, crc32c))


def short_name(path: Path) -> None:
    of(PARTITION)(path)
    for file in sorted((path / PARTITION).glob(f"{110:020}.*")):
        file.rename(file.with_name(f"110{file.suffix}"))


def odd_number(path: Path) -> None:
    of(PARTITION)(path)
    (path / PARTITION).rename(path / "idempotent-00")


def orphan(path: Path) -> None:
    of(PARTITION)(path)
    (path / PARTITION / f"{555:020}.index").write_bytes(b"")


def leftover(ending: str) -> Maker:
    """Return a maker of a file of an operation that was interrupted."""

    def make(path: Path) -> None:
        of(PARTITION)(path)
        (path / PARTITION / f"{110:020}.{ending}").write_bytes(b"")

    return make


def above_epochs(path: Path) -> None:
    with_text(PARTITION, LOG_STARTS, entry("idempotent", 0, 120))(path)
    (path / f"{PARTITION}/leader-epoch-checkpoint").write_text("0\n2\n2 100\n4 700\n")


def below_start(path: Path) -> None:
    of("trimmed-0")(path)
    (path / HIGH_WATERMARKS).write_text(entry("trimmed", 0, 3))
