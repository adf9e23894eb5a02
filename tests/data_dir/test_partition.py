"""A partition directory: its content, and the end of its log, in any state of the files."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import KlogError, UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, SegmentFiles
from klog.data_dir.root_files import SMALL_FILE_BYTES
from klog.formats.checkpoint import Malformed
from klog.formats.damage import Damage, DamageKind
from klog.log.header_walk import walk_headers

from tests.conftest import FIXTURES
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

CLEAN = ("modern", "legacy", "v39/data", "v39/data1", "compaction/before", "compaction/after")
BASE = 1000
INTERVAL = 7
"""Batches between two entries of the index."""


def batches(count: int, size: int = 200, base: int = BASE) -> list[bytes]:
    """Batches of two records each; offsets ascend without gaps."""
    rng = random.Random(size)
    return [
        encode.batch([Record(base + 2 * n + i, 1_700_000_000_000 + n, b"k", rng.randbytes(size)) for i in range(2)])
        for n in range(count)
    ]


def write_segment(directory: Path, entries: list[bytes], index: bytes | None = None) -> Partition:
    directory.mkdir(exist_ok=True)
    (directory / f"{BASE:020}.log").write_bytes(b"".join(entries))
    if index is not None:
        (directory / f"{BASE:020}.index").write_bytes(index)
    return Partition(str(directory))


def index_of(entries: list[bytes]) -> list[tuple[int, int]]:
    """The index a broker would keep: last offset and position of every seventh batch."""
    positions = [sum(map(len, entries[:n])) for n in range(len(entries))]
    return [(BASE + 2 * n + 1, positions[n]) for n in range(INTERVAL, len(entries), INTERVAL)]


# the content


def test_segments_come_in_the_order_of_their_offsets_with_their_files() -> None:
    partition = Partition(str(FIXTURES / "modern" / "tx-0"))
    assert [segment.base_offset for segment in partition.segments] == sorted(
        int(path.stem) for path in (FIXTURES / "modern" / "tx-0").glob("*.log")
    )
    for segment in partition.segments:
        stem = f"{segment.base_offset:020}"
        has_aborts = (FIXTURES / "modern" / "tx-0" / f"{stem}.txnindex").exists()
        assert segment == SegmentFiles(
            segment.base_offset,
            (FIXTURES / "modern" / "tx-0" / f"{stem}.log").stat().st_size,
            f"{stem}.log",
            f"{stem}.index",
            f"{stem}.timeindex",
            f"{stem}.txnindex" if has_aborts else None,
        )
    assert any(segment.txn_index for segment in partition.segments)
    assert partition.size == sum(segment.size for segment in partition.segments) > 0
    assert partition.snapshots[-1].offset == 648
    assert (partition.topic, partition.number, partition.topic_id) == ("tx", 0, "8kvIP8qpQlSlTHGWq6Hd1Q")
    assert partition.leader_epoch == 4


def test_a_directory_is_listed_once_however_much_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log dirs hold thousands of partitions: a second listing of each would double the wait."""
    listed: list[int] = []
    scandir = os.scandir

    def counted(descriptor: int) -> object:
        listed.append(descriptor)
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", counted)
    partition = Partition(str(FIXTURES / "modern" / "tx-0"))
    assert listed == []
    assert partition.segments
    assert partition.snapshots
    assert partition.topic_id
    assert partition.log_end
    assert len(listed) == 1


def test_a_partition_can_be_looked_at_with_the_files_that_it_will_have(tmp_path: Path) -> None:
    """A repair finishes an interrupted swap first: its next plan must be based on the present files."""
    partition = write_segment(tmp_path / "orders-3", batches(3), index=b"")
    (tmp_path / "orders-3" / f"{BASE:020}.log.swap").write_bytes(b"123")
    (tmp_path / "orders-3" / f"{BASE + 2:020}.snapshot").write_bytes(b"")
    log, index, snapshot = f"{BASE:020}.log", f"{BASE:020}.index", f"{BASE + 6:020}.snapshot"
    later = partition.with_files({snapshot: b"new", log: (log + ".swap", 3), index: b"rebuilt", "5.txt": ("x", 1)})
    assert later.segments == (SegmentFiles(BASE, 3, log + ".swap", None, None, None),)
    assert [file.name for file in later.snapshots] == [snapshot]
    assert (later.files, later.topic) == (partition.files, "orders")
    assert later.log_end is not None
    assert later.log_end.damage is not None
    assert [segment.log for segment in partition.segments] == [log]
    assert [file.offset for file in partition.snapshots] == [BASE + 2]


def test_leftovers_are_kept_apart(tmp_path: Path) -> None:
    for name in ("5.log", "5.index"):
        (tmp_path / name.replace("5", f"{5:020}")).touch()
    left = [f"{5:020}.log.swap", f"{5:020}.log.deleted", f"{9:020}.index.cleaned", "leader-epoch-checkpoint.tmp"]
    left.append(f"{5:020}.snapshot.deleted")
    for name in left:
        (tmp_path / name).touch()
    partition = Partition(str(tmp_path))
    assert [segment.base_offset for segment in partition.segments] == [5]
    assert partition.snapshots == ()
    assert sorted(file.name for file in partition.leftovers) == sorted(left)


def test_a_log_under_an_unusual_name_counts_only_where_there_is_no_other(tmp_path: Path) -> None:
    """A broker started in an Arabic locale writes such digits: the data is real, so it is shown."""
    (tmp_path / "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٥.log").write_bytes(b"x")
    (tmp_path / "7.log").write_bytes(b"x")
    (tmp_path / "+7.log").write_bytes(b"x")
    (tmp_path / f"{7:020}.log").write_bytes(b"xx")
    (tmp_path / "saved.log").write_bytes(b"xxx")
    (tmp_path / "-9.log").write_bytes(b"xxx")
    partition = Partition(str(tmp_path))
    assert [(segment.base_offset, segment.size) for segment in partition.segments] == [(5, 1), (7, 2)]


def test_what_is_no_file_is_named_and_nothing_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{0:020}.log")
    os.mkfifo(tmp_path / "leader-epoch-checkpoint")
    (tmp_path / f"{5:020}.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / f"{7:020}.log").mkdir()
    (tmp_path / "real").write_bytes(b"xyz")
    (tmp_path / f"{9:020}.log").symlink_to(tmp_path / "real")
    partition = Partition(str(tmp_path))
    assert [(segment.base_offset, segment.size) for segment in partition.segments] == [(9, 3)]
    assert partition.others == (f"{0:020}.log", f"{5:020}.log", "leader-epoch-checkpoint")
    assert partition.epochs is None


def test_names_that_are_not_utf8_lead_back_to_their_files(tmp_path: Path) -> None:
    directory = os.path.join(os.fsencode(tmp_path), b"caf\xe9-3")
    os.mkdir(directory)
    with open(os.path.join(directory, b"00000000000000000000.log"), "wb") as log:
        log.write(b"".join(batches(3, base=0)))
    with open(os.path.join(directory, b"\xff.log"), "wb"):
        pass
    partition = Partition(os.fsdecode(directory))
    assert partition.number == 3
    assert partition.log_end is not None
    assert partition.log_end.offset == 6


def test_an_empty_directory_has_no_end(tmp_path: Path) -> None:
    partition = Partition(str(tmp_path))
    assert (partition.segments, partition.log_end, partition.log_start_offset, partition.leader_epoch) == (
        (),
        None,
        None,
        None,
    )
    assert partition.unreadable is None


def test_a_directory_that_vanished_is_a_value(tmp_path: Path) -> None:
    """A running broker renames and removes partitions at any time."""
    partition = Partition(str(tmp_path / "orders-3"))
    assert partition.segments == ()
    assert partition.log_end is None
    assert partition.topic_id is None
    assert partition.unreadable == "cannot be listed: No such file or directory"


def test_files_that_vanish_after_the_listing(tmp_path: Path) -> None:
    write_segment(tmp_path / "t-0", batches(3))
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw")
    partition = Partition(str(tmp_path / "t-0"))
    assert partition.segments
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(UnreadableError, match="No such file"):
        _ = partition.log_end
    assert isinstance(partition.metadata, Malformed)
    assert partition.topic_id is None
    assert partition.epochs is not None
    assert partition.epochs.malformed is not None


def test_a_text_file_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").touch()
    os.truncate(tmp_path / "leader-epoch-checkpoint", 1 << 40)
    epochs = Partition(str(tmp_path)).epochs
    assert epochs is not None
    assert epochs.malformed == Malformed(0, f"{1 << 40} bytes are far too many for such a file")
    assert SMALL_FILE_BYTES < 1 << 30


# the facts of the log dir around it


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("orders-3", (20, 15, 10, 7)),
        ("orders-3.0f8fad5bd9cb469fa16570867728950e-future", (20, 15, 10, 7)),
        ("orders-3.0f8fad5bd9cb469fa16570867728950e-delete", (None, None, None, 0)),
        ("orders-3.0f8fad5bd9cb469fa16570867728950e-stray", (None, None, None, 0)),
        ("orders-4", (None, None, None, 0)),
    ],
)
def test_checkpoints_belong_to_the_partition_in_use(
    tmp_path: Path, directory: str, expected: tuple[int | None, ...]
) -> None:
    """The files' entries for orders 3 do not concern a leftover of an earlier orders 3."""
    for name, offset in (("replication-", 20), ("recovery-point-", 15), ("cleaner-", 10), ("log-start-", 7)):
        (tmp_path / f"{name}offset-checkpoint").write_text(f"0\n1\norders 3 {offset}\n")
    (tmp_path / directory).mkdir()
    (tmp_path / directory / f"{0:020}.log").touch()
    partition = Partition(str(tmp_path / directory))
    found = (partition.high_watermark, partition.recovery_point, partition.cleaner_offset, partition.log_start_offset)
    assert found == expected


def test_the_log_starts_at_the_checkpoint_or_at_the_first_segment_whichever_is_later(tmp_path: Path) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\na 0 5\nb 0 5\n")
    for topic, base in (("a", 3), ("b", 9)):
        (tmp_path / f"{topic}-0").mkdir()
        (tmp_path / f"{topic}-0" / f"{base:020}.log").touch()
    assert [partition.log_start_offset for partition in LogDir(str(tmp_path)).partitions] == [5, 9]


def test_an_epoch_checkpoint_out_of_order_gives_the_epoch_that_a_broker_would_keep(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n9 60\n4 50\n")
    assert Partition(str(tmp_path)).leader_epoch == 4


def test_an_epoch_checkpoint_that_a_broker_refuses_gives_no_epoch(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n4 50\nx 60\n")
    assert Partition(str(tmp_path)).leader_epoch is None


# where the log ends


@pytest.mark.parametrize("name", CLEAN)
def test_the_end_is_where_the_broker_left_it(name: str) -> None:
    """After a clean stop the recovery point is the log end offset that the broker itself wrote down."""
    compared = 0
    for partition in LogDir(str(FIXTURES / name)).partitions:
        if partition.recovery_point is None:
            continue
        end = partition.log_end
        assert end is not None
        assert (end.offset, end.damage) == (partition.recovery_point, None), partition.directory
        assert end.position == partition.segments[-1].size
        compared += 1
    assert compared >= 4


GOOD = index_of(batches(40))
GARBAGE = random.Random(5).randbytes(8 * 40)
INDEXES: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "one byte": b"\0",
    "good": encode.offset_entries(BASE, GOOD),
    "preallocated": encode.offset_entries(BASE, GOOD) + bytes(10 << 20),
    "only zeros": bytes(4096),
    "ragged": encode.offset_entries(BASE, GOOD) + b"\1\2\3",
    "short": encode.offset_entries(BASE, GOOD[:1]),
    "garbage": GARBAGE,
    "garbage after the good": encode.offset_entries(BASE, GOOD) + GARBAGE,
    "entries of a longer log": encode.offset_entries(BASE, [*GOOD, *((1100 + n, 500_000 + n) for n in range(50))])
    + bytes(800),
    "positions inside batches": encode.offset_entries(BASE, [(offset, position + 11) for offset, position in GOOD]),
    "offsets too low": encode.offset_entries(BASE, [(BASE + 1, position) for _, position in GOOD]),
    "negative": encode.offset_entries(BASE, [(BASE - 5, -100), (BASE - 4, -50)]),
}


@pytest.mark.parametrize("index", INDEXES)
def test_the_end_is_right_whatever_the_index_says(tmp_path: Path, index: str) -> None:
    """The log answers; the index only saves the walk."""
    end = write_segment(tmp_path / "t-0", batches(40), INDEXES[index]).log_end
    assert end is not None
    assert (end.offset, end.damage) == (BASE + 80, None)
    if index in ("good", "preallocated", "ragged", "entries of a longer log"):
        assert end.walked_from == GOOD[-2][1], "the index was of no use"


@pytest.mark.parametrize("seed", range(20))
def test_the_end_is_right_after_a_random_index(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    entries = batches(30, size=rng.choice((10, 100, 3000)))
    size = sum(map(len, entries))
    pairs = sorted((rng.randrange(1, 80), rng.randrange(1, size)) for _ in range(rng.randrange(1, 60)))
    index = encode.offset_entries(0, pairs)
    end = write_segment(tmp_path / "t-0", entries, index).log_end
    assert end is not None
    assert (end.offset, end.position, end.damage) == (BASE + 60, size, None)


def test_batches_inside_a_record_do_not_pass_for_those_of_the_log(tmp_path: Path) -> None:
    """Topics that carry copies of logs hold whole batches as values; a damaged index can lead right into them."""
    inner = batches(2, size=10, base=BASE + 3)
    outer = encode.batch([Record(BASE + 2, 0, None, b"".join(inner))])
    entries = [*batches(1), outer, *batches(3, base=BASE + 3)]
    at = len(entries[0]) + outer.index(inner[0])
    index = encode.offset_entries(BASE, [(BASE + 4, at), (BASE + 6, at + len(inner[0]))])
    end = write_segment(tmp_path / "t-0", entries, index).log_end
    assert end is not None
    assert (end.offset, end.walked_from, end.damage) == (BASE + 9, 0, None)


def test_a_batch_inside_the_last_record_does_not_pass_for_the_end_of_the_log(tmp_path: Path) -> None:
    """The value of a last header ends where its batch ends, so from inside all looks well."""
    inner = encode.batch([Record(BASE + 30, 0, b"k", b"v")])
    before = batches(30)
    outer = encode.batch([Record(BASE + 60, 0, None, b"v", ((b"copy", inner),))])
    entries = [*before, outer]
    at = len(b"".join(before)) + outer.index(inner)
    assert outer.endswith(inner)
    for good in ([], index_of(before)):
        index = encode.offset_entries(BASE, [*good, (BASE + 60, at)])
        end = write_segment(tmp_path / "t-0", entries, index).log_end
        assert end is not None
        assert (end.offset, end.damage) == (BASE + 61, None)


def test_a_log_that_is_cut_while_it_is_open_ends_where_it_was_cut(tmp_path: Path) -> None:
    """A broker may truncate the active segment at any time: the size that was seen first is then too large."""
    entries = batches(5)
    whole = b"".join(entries)
    for cut in (0, 1, 30, len(entries[0]), len(entries[0]) + 60, len(whole) - 1):
        (tmp_path / "log").write_bytes(whole)
        with ReadOnlyFile(str(tmp_path / "log")) as source:
            os.truncate(tmp_path / "log", cut)
            found = list(walk_headers(source))
        kept = sum(cut >= sum(map(len, entries[: n + 1])) for n in range(5))
        is_between = cut == sum(map(len, entries[:kept]))
        assert [isinstance(header, Damage) for header in found] == [False] * kept + [True] * (not is_between)


@pytest.mark.parametrize("index", ["missing", "good"])
@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"\1", DamageKind.TORN_TAIL),
        (batches(1)[0][:30], DamageKind.TORN_TAIL),
        (batches(1)[0][:-1], DamageKind.TORN_TAIL),
        (bytes(5000), DamageKind.ZEROED_TAIL),
        (bytes(3), DamageKind.ZEROED_TAIL),
        (b"\xff" * 17, DamageKind.TORN_TAIL),
        (b"\xff" * 18, DamageKind.BAD_LENGTH),
        (b"\xff" * 100, DamageKind.BAD_LENGTH),
        (bytes(8) + b"\0\0\0\x50" + bytes(4) + b"\7" + bytes(200), DamageKind.BAD_MAGIC),
        (bytes(8) + b"\0\0\0\x10" + bytes(4) + b"\2" + bytes(200), DamageKind.SHORT_HEADER),
    ],
)
def test_the_end_is_the_last_whole_batch_and_the_rest_is_named(
    tmp_path: Path, tail: bytes, kind: DamageKind, index: str
) -> None:
    entries = batches(40)
    size = sum(map(len, entries))
    end = write_segment(tmp_path / "t-0", [*entries, tail], INDEXES[index]).log_end
    assert end is not None
    assert end.damage is not None
    assert (end.offset, end.position, end.damage.kind) == (BASE + 80, size, kind)
    assert (end.damage.place.position, end.damage.place.offset, end.damage.size) == (size, BASE + 80, len(tail))


def test_a_segment_without_a_whole_batch_ends_where_it_begins(tmp_path: Path) -> None:
    for tail in (b"", b"x", bytes(100)):
        end = write_segment(tmp_path / "t-0", [tail], encode.offset_entries(BASE, GOOD)).log_end
        assert end is not None
        assert (end.offset, end.position) == (BASE, 0)


@pytest.mark.parametrize("size", [1, 1500, 3000, 5000, 70_000])
def test_the_walk_is_right_for_batches_of_every_size(tmp_path: Path, size: int) -> None:
    """Windows change with the batches; a header across their edge must not be lost."""
    rng = random.Random(size)
    entries = []
    for n in range(120):
        value = rng.randbytes(rng.randrange(size) if n % 3 else size)
        entries.append(encode.batch([Record(BASE + n, 0, b"k", value)]))
    end = write_segment(tmp_path / "t-0", entries).log_end
    assert end is not None
    assert (end.offset, end.position, end.damage) == (BASE + 120, sum(map(len, entries)), None)


def test_messages_of_old_formats_end_with_their_last_offset(tmp_path: Path) -> None:
    records = [Record(BASE + n, 1_700_000_000_000, b"k", b"v" * 50) for n in range(10)]
    for magic in (0, 1):
        single = [encode.message(record.offset, magic, b"k", b"v") for record in records[:5]]
        entries = [*single, encode.wrapper(records[5:], magic, "gzip")]
        end = write_segment(tmp_path / f"t-{magic}", entries).log_end
        assert end is not None
        assert (end.offset, end.damage) == (BASE + 10, None)


def test_only_the_last_segment_is_read_for_the_end(tmp_path: Path) -> None:
    partition = write_segment(tmp_path / "t-0", batches(3))
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(b"not read")
    assert partition.log_end is not None
    assert partition.log_end.offset == BASE + 6


def test_a_directory_in_place_of_the_log_is_an_error_with_a_name(tmp_path: Path) -> None:
    partition = write_segment(tmp_path / "t-0", batches(3))
    assert partition.segments
    (tmp_path / "t-0" / f"{BASE:020}.log").unlink()
    os.mkfifo(tmp_path / "t-0" / f"{BASE:020}.log")
    with pytest.raises(KlogError, match="FIFO"):
        _ = partition.log_end


UNDECIDED_BY_CHECKSUMS = (
    "flip-flushed",
    "index-missing",
    "index-ragged",
    "index-garbage",
    "recovery-point-zero",
    "zeros-appended",
    "garbage-appended",
    "torn-in-batch",
    "torn-in-header",
    "torn-in-length",
    "zeroed-segment",
)


@pytest.mark.corpora
@pytest.mark.parametrize("name", UNDECIDED_BY_CHECKSUMS)
def test_the_end_after_a_crash_is_what_the_broker_came_to(name: str, image: Callable[[str], Path]) -> None:
    """The image before the broker's recovery against its recovery point afterwards, where only headers decide."""
    before, after = (
        LogDir(str(image(f"crash/v4.3.1-{name}/{when}.tar.gz"))).partition("torn-0") for when in ("before", "after")
    )
    assert before.log_end is not None
    assert before.log_end.offset == after.recovery_point
