"""Each kind of damage at each place: found with the right id, where it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.batch import BATCH
from klog.kernel import crc32c
from klog.log.segment import Batch, Segment

from tests.oracles.plain import compress, encode, shapes
from tests.partition.verify.partitions import Damageable, flipped

PARTITION = "idempotent-0"
SEGMENTS = {"first": 0, "middle": 2, "last": -1}
PLACES = [(segment, batch) for segment in SEGMENTS for batch in ("first", "middle", "last")]

Change = Callable[[bytearray, Batch], None]


def crc(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.size] ^= 0xFF


def stored_crc(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.offsets["crc"]] ^= 0xFF


def attributes(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.offsets["attributes"] + 1] ^= 0x40


def small_size(data: bytearray, batch: Batch) -> None:
    at = batch.position + BATCH.offsets["size"]
    data[at : at + 4] = (3).to_bytes(4, "big")


def short_size(data: bytearray, batch: Batch) -> None:
    at = batch.position + BATCH.offsets["size"]
    data[at : at + 4] = (20).to_bytes(4, "big")


def negative_size(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.offsets["size"]] |= 0x80


def magic(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.offsets["magic"]] = 9


def zeros(data: bytearray, batch: Batch) -> None:
    data[batch.position : batch.position + batch.size] = bytes(batch.size)


def epoch(data: bytearray, batch: Batch) -> None:
    data[batch.position + BATCH.offsets["leader_epoch"] + 1] ^= 0x10


def far_offset(data: bytearray, batch: Batch) -> None:
    data[batch.position] ^= 0x01


CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "payload": (crc, ("bad-crc",)),
    "stored crc": (stored_crc, ("bad-crc",)),
    "attributes": (attributes, ("bad-crc",)),
    "size 3": (small_size, ("bad-length", "garbage-tail", "torn-tail")),
    "size 20": (short_size, ("short-header", "garbage-tail", "torn-tail")),
    "size below zero": (negative_size, ("bad-length", "garbage-tail", "torn-tail")),
    "magic 9": (magic, ("bad-magic", "garbage-tail", "torn-tail")),
    "zeros": (zeros, ("bad-length", "zeroed")),
    "epoch": (epoch, ("odd-epoch", "epochs-disagree")),
    "base offset": (far_offset, ("offset-overflow",)),
}


@pytest.fixture
def damageable(tmp_path: Path) -> Damageable:
    return Damageable(tmp_path, PARTITION)


def logs(damageable: Damageable) -> list[Path]:
    return sorted((damageable.path / PARTITION).glob("*.log"))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", PLACES, ids="-".join)
def test_a_damaged_batch(damageable: Damageable, place: tuple[str, str], change: str) -> None:
    path = logs(damageable)[SEGMENTS[place[0]]]
    batches = [batch for batch in Segment(str(path)).batches() if isinstance(batch, Batch)]
    batch = {"first": batches[0], "middle": batches[len(batches) // 2], "last": batches[-1]}[place[1]]
    data = bytearray(path.read_bytes())
    damage, ids = CHANGES[change]
    damage(data, batch)
    path.write_bytes(data)
    found = [finding for finding in damageable.problems() if finding.id in ids]
    assert found, [finding.id for finding in damageable.problems()]
    if found[0].id != "epochs-disagree":
        assert (found[0].file, found[0].position) == (f"{PARTITION}/{path.name}", batch.position)
    assert (found[0].topic, found[0].partition) == ("idempotent", 0)
    assert found[0].message
    assert found[0].broker


def test_one_odd_offset_puts_no_snapshot_in_the_wrong(damageable: Damageable) -> None:
    """The producer of that batch seems to be elsewhere than the broker knew; but it is the batch that is wrong."""
    log = logs(damageable)[1]
    damageable.change(f"{PARTITION}/{log.name}", flipped(6))
    ids = {finding.id for finding in damageable.problems()}
    assert "odd-offset" in ids
    assert "snapshot-disagrees" not in ids


def ragged(data: bytearray) -> bytearray:
    return data + b"\0\0\1"


def garbage(data: bytearray) -> bytearray:
    return bytearray((i * 167 + 13) & 0xFF for i in range(len(data)))


def reversed_entries(size: int) -> Callable[[bytearray], bytes]:
    return lambda data: b"".join(bytes(data[at : at + size]) for at in range(len(data) - size, -1, -size))


def hole(size: int) -> Callable[[bytearray], bytes]:
    return lambda data: bytes(data[:size]) + bytes(size) + bytes(data[size:])


def shifted(size: int, value_at: int, value_bytes: int) -> Callable[[bytearray], bytes]:
    """Each entry gets the value of the next one, the last a larger one."""

    def change(data: bytearray) -> bytes:
        entries = [data[at : at + size] for at in range(0, len(data), size)]
        values = [bytes(entry[value_at : value_at + value_bytes]) for entry in entries]
        following = [*values[1:], (int.from_bytes(values[-1], "big") + 1).to_bytes(value_bytes, "big")]
        return b"".join(
            bytes(entry[:value_at]) + value + bytes(entry[value_at + value_bytes :])
            for entry, value in zip(entries, following, strict=True)
        )

    return change


INDEXES: dict[str, tuple[Callable[[bytearray], bytes | bytearray | None], str, set[str]]] = {
    "missing": (lambda _: None, "index", {"index-missing"}),
    "ragged": (ragged, "index", {"index-ragged"}),
    "garbage": (garbage, "index", {"index-order", "index-beyond-log", "index-disagrees"}),
    "zero tail": (lambda data: data + bytes(800), "index", {"index-zero-tail"}),
    "hole": (hole(8), "index", {"index-hole"}),
    "shifted": (shifted(8, 4, 4), "index", {"index-disagrees"}),
    "time missing": (lambda _: None, "timeindex", {"time-index-missing"}),
    "time ragged": (ragged, "timeindex", {"time-index-ragged"}),
    "time garbage": (garbage, "timeindex", {"time-index-order", "time-index-ahead", "time-index-beyond-log"}),
    "time zero tail": (lambda data: data + bytes(1200), "timeindex", {"time-index-zero-tail"}),
    "time hole": (hole(12), "timeindex", {"time-index-hole"}),
    "time reversed": (reversed_entries(12), "timeindex", {"time-index-order"}),
    "time empty": (lambda _: b"", "timeindex", {"time-index-short"}),
    "time shifted": (shifted(12, 0, 8), "timeindex", {"time-index-ahead", "time-index-order"}),
}


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("change", INDEXES)
def test_a_damaged_index(damageable: Damageable, segment: str, change: str) -> None:
    damage, suffix, ids = INDEXES[change]
    path = logs(damageable)[SEGMENTS[segment]].with_suffix(f".{suffix}")
    if change in ("hole", "time hole") and path.stat().st_size <= (8 if suffix == "index" else 12):
        ids = {f"{'time-' * (suffix == 'timeindex')}index-zero-tail"}
    if len(path.read_bytes()) == 12 and change == "time reversed":
        pytest.fail("an index of one entry has no order")
    damageable.change(f"{PARTITION}/{path.name}", damage)
    found = {finding.id: finding for finding in damageable.problems()}
    assert set(found) & ids, set(found)
    named = next(finding for finding in found.values() if finding.id in ids)
    assert named.file == f"{PARTITION}/{path.with_suffix('.log').name if 'missing' in change else path.name}"


ROOT = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
TEXTS = {
    "version": b"7\n0\n",
    "count": b"0\n3\nidempotent 0 5\n",
    "fields": b"0\n1\nidempotent 0\n",
    "number": b"0\n1\nidempotent 0 x\n",
    "not utf-8": b"0\n1\n\xff 0 1\n",
    "cut": b"0\n1\nidempot",
}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", ROOT)
def test_a_damaged_checkpoint(damageable: Damageable, name: str, text: str) -> None:
    (damageable.path / name).write_bytes(TEXTS[text])
    found = [finding for finding in damageable.problems() if finding.id == "checkpoint-malformed"]
    assert [finding.file for finding in found] == [name]


@pytest.mark.parametrize(
    "text", [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\na b\n", b"0\n1\n-1 0\n", b"0\n1\n0 -5\n", b"\xff", b"x"]
)
def test_damaged_epochs(damageable: Damageable, text: bytes) -> None:
    (damageable.path / PARTITION / "leader-epoch-checkpoint").write_bytes(text)
    found = [finding for finding in damageable.problems() if finding.id == "epochs-malformed"]
    assert [finding.file for finding in found] == [f"{PARTITION}/leader-epoch-checkpoint"]


@pytest.mark.parametrize(
    ("said", "offset", "kind", "file"),
    [
        ("recovery-point-offset-checkpoint", 801, "recovery-point-beyond-end", None),
        ("replication-offset-checkpoint", 900, "high-watermark-beyond-end", None),
        ("log-start-offset-checkpoint", 801, "log-start-beyond-end", None),
        ("log-start-offset-checkpoint", 2**62, "log-start-beyond-end", None),
    ],
)
def test_a_checkpoint_that_contradicts_the_log(
    damageable: Damageable, said: str, offset: int, kind: str, file: str | None
) -> None:
    (damageable.path / said).write_text(f"0\n1\nidempotent 0 {offset}\n")
    found = [finding for finding in damageable.problems() if finding.id == kind]
    assert [(finding.file, finding.offset) for finding in found] == [(said, offset)]


NAMES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a foreign directory": (lambda path: (path / "lost+found").mkdir(), "foreign-directory", "lost+found"),
    "a backup directory": (lambda path: (path / "orders-0.bak").mkdir(), "foreign-directory", "orders-0.bak"),
    "no number": (lambda path: (path / "orders-x").mkdir(), "foreign-directory", "orders-x"),
    "a saved log": (
        lambda path: (path / PARTITION / "saved.log").write_bytes(b""), "foreign-log-name", f"{PARTITION}/saved.log"
    ),
    "a saved index": (
        lambda path: (path / PARTITION / "x.index").write_bytes(b""), "foreign-log-name", f"{PARTITION}/x.index"
    ),
    "a saved snapshot": (
        lambda path: (path / PARTITION / "a.snapshot").write_bytes(b""), "foreign-log-name", f"{PARTITION}/a.snapshot"
    ),
    "a segment twice": (
        lambda path: shutil.copy(path / PARTITION / f"{110:020}.log", path / PARTITION / "110.log"),
        "duplicate-segment",
        f"{PARTITION}/110.log",
    ),
    "a partition twice": (
        lambda path: shutil.copytree(path / PARTITION, path / "idempotent-00"), "duplicate-partition", "idempotent-00"
    ),
    "no metadata": (
        lambda path: (path / PARTITION / "partition.metadata").unlink(), "metadata-missing", PARTITION
    ),
    "empty metadata": (
        lambda path: (path / PARTITION / "partition.metadata").write_bytes(b""),
        "metadata-malformed",
        f"{PARTITION}/partition.metadata",
    ),
    "no meta.properties": (
        lambda path: (path / "meta.properties").unlink(), "meta-properties-missing", "meta.properties"
    ),
    "a broken klog-follow.json": (
        lambda path: (path / "klog-follow.json").write_bytes(b"{}"), "follow-file-malformed", "klog-follow.json"
    ),
    "a broken meta.properties": (
        lambda path: (path / "meta.properties").write_bytes(b"version=x\n"),
        "meta-properties-malformed",
        "meta.properties",
    ),
    "no epochs": (
        lambda path: (path / PARTITION / "leader-epoch-checkpoint").unlink(), "epochs-missing", PARTITION
    ),
    "no snapshots": (
        lambda path: [file.unlink() for file in (path / PARTITION).glob("*.snapshot")], "snapshots-missing", PARTITION
    ),
    "a segment less": (
        lambda path: [file.unlink() for file in (path / PARTITION).glob(f"{210:020}.*")],
        "offset-gap",
        f"{PARTITION}/{110:020}.log",
    ),
    "epochs of others": (
        lambda path: (path / PARTITION / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n"),
        "epochs-disagree",
        f"{PARTITION}/leader-epoch-checkpoint",
    ),
    "epochs beyond": (
        lambda path: (path / PARTITION / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 90000\n"),
        "epochs-disagree",
        f"{PARTITION}/leader-epoch-checkpoint",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_and_small_files(damageable: Damageable, name: str) -> None:
    change, kind, file = NAMES[name]
    change(damageable.path)
    found = [finding for finding in damageable.problems() if finding.id == kind]
    assert [finding.file for finding in found][:1] == [file], [finding.id for finding in damageable.problems()]


def with_good_crc(data: bytes) -> bytes:
    """Return a changed batch with a checksum that holds."""
    head = bytearray(data)
    crc, covered = BATCH.offsets["crc"], BATCH.offsets["attributes"]
    head[crc:covered] = crc32c(bytes(head[covered:])).to_bytes(4, "big")
    return bytes(head)


@pytest.mark.parametrize("deep", [False, True])
def test_records_that_are_not_the_batchs_own(tmp_path: Path, deep: bool) -> None:
    """The checksum holds, each record can be decoded, but a record's offset is one that the batch does not have."""
    damageable = Damageable(tmp_path, "zstd-0")
    folder = tmp_path / "strays-0"
    folder.mkdir()
    good = encode.batch([encode.Record(at, shapes.MS, b"k", b"v") for at in range(3)])
    at = good.index(b"\x02k\x02v")  # the first record: length, attributes, timestamp delta, offset delta, key …
    strange = bytearray(good)
    strange[at - 1] = 2 * 30  # its offset delta, zig-zag: 30
    (folder / f"{0:020}.log").write_bytes(with_good_crc(bytes(strange)))
    found = [finding for finding in damageable.problems(deep) if finding.id == "bad-record"]
    assert [(finding.file, finding.position) for finding in found] == [(f"strays-0/{0:020}.log", 0)] * deep


@pytest.mark.parametrize("deep", [False, True])
def test_a_message_inside_a_wrapper(tmp_path: Path, deep: bool) -> None:
    """Its own checksum does not hold, the wrapper's does: only --deep looks inside."""
    damageable = Damageable(tmp_path, "zstd-0")
    folder = tmp_path / "old-0"
    folder.mkdir()
    messages = bytearray(encode.message(0, 1, b"k", b"value") + encode.message(1, 1, b"k", b"value"))
    messages[-1] ^= 0xFF
    wrapper = encode.message(1, 1, None, compress.gzip_stream(bytes(messages)), attributes=1)
    (folder / f"{0:020}.log").write_bytes(wrapper)
    found = [finding for finding in damageable.problems(deep) if finding.id == "bad-crc"]
    assert [finding.file for finding in found] == [f"old-0/{0:020}.log"] * deep


def test_the_matrix_is_large_enough() -> None:
    cases = len(CHANGES) * len(PLACES) + len(INDEXES) * len(SEGMENTS) + len(TEXTS) * len(ROOT) + len(NAMES) + 12
    assert cases >= 150
