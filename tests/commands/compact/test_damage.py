"""Damage in the input of a compaction: the partition is unchanged, and reported; the others are compacted."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import klog.change.plan.session
import klog_cli.views.compact.compact
import pytest
from klog.data_dir.disk.disk_changes import Disk, OpenFile

from tests.commands.compact.compacting import NOW_MS, batches, table
from tests.conftest import Ran
from tests.oracles.plain import encode
from tests.oracles.plain.compress import compress
from tests.oracles.plain.decode import Batch, scan
from tests.oracles.plain.encode import Record
from tests.support.bad_sectors import spoil
from tests.support.damage import case, sources
from tests.support.power import HastyDisk, same, tree

T_MS = NOW_MS - 3_600_000
SEALED, ACTIVE = "00000000000000000010.log", "00000000000000000030.log"
COMMAND = ("compact", "--policy=compact", f"--now={NOW_MS}", "--apply")
Damage = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def _hasty(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(klog_cli.views.compact.compact, "Disk", HastyDisk)


def batch(offset: int, codec: str = "none", count: int = 2) -> bytes:
    records = [Record(at, T_MS + at, b"k%d" % (at % 4), b"value %d" % at) for at in range(offset, offset + count)]
    return encode.batch(records, codec=codec)


def write(folder: Path, codec: str = "none") -> Path:
    """Write a log dir with two partitions of the same content: four segments, five batches each."""
    data = folder / "data"
    for directory in ("bad-0", "good-0"):
        partition = data / directory
        partition.mkdir(parents=True)
        for base in (0, 10, 20, 30):
            log = b"".join(batch(offset, codec) for offset in range(base, base + 10, 2))
            (partition / f"{base:020}.log").write_bytes(log)
            (partition / f"{base:020}.index").touch()
            (partition / f"{base:020}.timeindex").write_bytes(encode.time_entries(base, [(T_MS + base + 9, base + 9)]))
    return data


def positions(log: bytes) -> list[int]:
    return [one.position for one in scan(log) if isinstance(one, Batch)]


def again(log: bytes, at: int, records: bytes | None = None, **fields: int) -> bytes:
    """Return *log* with batch number *at* written anew, its checksum right: other records, other fields."""
    starts = [*positions(log), len(log)]
    old = next(one for one in scan(log[starts[at] : starts[at + 1]]) if isinstance(one, Batch))
    header = encode.BatchHeader(
        base_offset=old.base_offset,
        codec=old.codec,
        last_offset_delta=old.last_offset - old.base_offset,
        base_timestamp=old.base_timestamp,
        max_timestamp=old.max_timestamp,
        count=old.count or 0,
    )
    content = log[starts[at] + 61 : starts[at + 1]] if records is None else records
    made = encode.raw_batch(replace(header, **fields), content)  # type: ignore[arg-type]  # numbers, all of them
    return log[: starts[at]] + made + log[starts[at + 1] :]


def pair(*deltas: int) -> bytes:
    return b"".join(encode.record(offset_delta=delta, key=b"k", value=b"v") for delta in deltas)


IN_ANY_FORMAT: dict[str, Damage] = {
    "cut in a batch": lambda log: log[:-20],
    "cut in a header": lambda log: log[: positions(log)[-1] + 10],
    "a bit of a value": lambda log: log[:-3] + bytes([log[-3] ^ 1]) + log[-2:],
    "a bit of an offset": lambda log: _flip(log, positions(log)[2] + 6, 0x40),
    "a bit of a length": lambda log: _flip(log, positions(log)[2] + 11, 0x08),
    "zeros inside": lambda log: log[:150] + bytes(100) + log[250:],
    "zeros at the end": lambda log: log + bytes(64),
    "zeros from a batch on": lambda log: log[: positions(log)[2]] + bytes(len(log) - positions(log)[2]),
    "noise at the end": lambda log: log + b"\xa5" * 40,
    "nothing but noise": lambda log: b"\x5a" * 300,
    "a length of 2 GiB": lambda log: _length(log, 2**31 - 1),
    "a negative length": lambda log: _length(log, -1),
    "no length": lambda log: _length(log, 0),
    "a batch twice": lambda log: log[: positions(log)[3]] + log[positions(log)[2] :],
    "batches the other way round": lambda log: b"".join(
        log[start:end]
        for start, end in reversed(list(zip(positions(log), [*positions(log)[1:], len(log)], strict=True)))
    ),
}
RIGHT_CHECKSUM: dict[str, Damage] = {
    "a record of more than there is": lambda log: again(log, 2, encode.record(length=90, value=b"v") + pair(1)),
    "more records counted": lambda log: again(log, 2, pair(0, 1), count=3),
    "fewer records counted": lambda log: again(log, 2, pair(0, 1), count=1),
    "two billion records counted": lambda log: again(log, 2, pair(0, 1), count=2**31 - 1),
    "a negative count": lambda log: again(log, 2, pair(0, 1), count=-5),
    "a key of more than there is": lambda log: again(log, 2, encode.varint(6) + b"\0\0\0" + encode.varint(99) + b"kv"),
    "records backwards": lambda log: again(log, 2, pair(1, 0)),
    "a record twice": lambda log: again(log, 2, pair(1, 1)),
    "a record above its batch": lambda log: again(log, 2, pair(0, 2)),
    "a record below its batch": lambda log: again(log, 2, pair(-1, 1)),
    "offsets backwards": lambda log: again(log, 2, base_offset=12),
    "an offset below the segment": lambda log: again(log, 0, base_offset=8),
    "a batch into the next segment": lambda log: again(log, 4, last_offset_delta=7),
    "no such codec": lambda log: again(log, 2, codec=6),
    "no lz4": lambda log: again(log, 2, b"not compressed at all", codec=3),
    "a negative delta": lambda log: again(log, 2, last_offset_delta=-1),
}


def _flip(log: bytes, at: int, bits: int) -> bytes:
    return log[:at] + bytes([log[at] ^ bits]) + log[at + 1 :]


def _length(log: bytes, length: int) -> bytes:
    at = positions(log)[2] + 8
    return log[:at] + struct.pack(">i", length) + log[at + 4 :]


def refused(ran: Ran, data: Path, before: object, file: str = f"bad-0/{SEALED}") -> None:
    """Check that one partition is unchanged, that the line names the place and the next step, and that the other is
    done."""
    errors = [line for line in ran.stderr.decode().splitlines() if "bad-0" in line]
    assert ran.exit_code == 4, ran
    assert len(errors) == 1, ran
    assert f"klog recover {data / 'bad-0'}" in errors[0]
    assert Path(file).name in errors[0]
    assert tree(data / "bad-0") == before
    assert [one.base_offset for one in batches(data / "good-0")] != list(range(0, 40, 2))
    assert (data / "cleaner-offset-checkpoint").read_text() == "0\n1\ngood 0 30\n"
    (backup,) = (data.parent / "klog-backup").iterdir()
    assert not [path for path in backup.rglob("*") if "bad-0" in path.parts]
    assert not (backup / "staged").exists()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("kind", IN_ANY_FORMAT)
def test_damage_in_a_sealed_segment(kind: str, codec: str, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """A broker's cleaner compares no checksums, and hides for ever all damage that it can still read."""
    data = write(tmp_path, codec)
    log = data / "bad-0" / SEALED
    log.write_bytes(IN_ANY_FORMAT[kind](log.read_bytes()))
    before = tree(data / "bad-0")
    refused(klog(*COMMAND, data), data, before)


@pytest.mark.parametrize("kind", RIGHT_CHECKSUM)
@pytest.mark.parametrize("everything", [True, False])
def test_damage_with_a_right_checksum(kind: str, everything: bool, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Somebody has written it so.  In the part that was clean before it is met in the second pass alone."""
    data = write(tmp_path)
    log = data / "bad-0" / SEALED
    log.write_bytes(RIGHT_CHECKSUM[kind](log.read_bytes()))
    before = tree(data / "bad-0")
    if not everything:
        (data / "cleaner-offset-checkpoint").write_text("0\n1\nbad 0 20\n")
    ran = klog(*COMMAND, "--min-dirty-ratio=0", data)
    if not everything:
        assert (data / "cleaner-offset-checkpoint").read_text() == "0\n2\nbad 0 20\ngood 0 30\n"
        (data / "cleaner-offset-checkpoint").write_text("0\n1\ngood 0 30\n")
    refused(ran, data, before)


INNER: dict[str, Callable[[list[Record]], bytes]] = {
    "an inner size that is negative": lambda given: _inner(given, lambda inner: inner[:8] + b"\xff" * 4 + inner[12:]),
    "an inner checksum that does not hold": lambda given: _inner(given, lambda inner: _flip(inner, 14, 0xFF)),
    "no stream": lambda given: encode.wrapper(given, 1, "gzip", stream=b"no stream"),
    "nothing inside": lambda given: _inner(given, lambda inner: b""),
}


def _inner(given: list[Record], change: Damage) -> bytes:
    inside = b"".join(
        encode.message(one.offset - given[0].offset, 1, one.key, one.value, timestamp=one.timestamp) for one in given
    )
    return encode.wrapper(given, 1, "gzip", stream=compress("gzip", change(inside), magic=1))


@pytest.mark.parametrize("like_broker", [(), ("--like-broker",)], ids=["as they are", "like a broker"])
@pytest.mark.parametrize("kind", INNER)
def test_damage_in_a_wrapper(kind: str, like_broker: tuple[str, ...], tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """The checksum of a wrapper matches, and its content is broken."""
    data = write(tmp_path)
    records = [Record(at, T_MS + at, b"k%d" % (at % 4), b"value") for at in range(10, 20)]
    sound = encode.wrapper(records[:5], 1, "gzip")
    (data / "bad-0" / SEALED).write_bytes(sound + INNER[kind](records[5:]))
    before = tree(data / "bad-0")
    refused(klog(*COMMAND, *like_broker, data), data, before)


def test_segments_that_overlap_are_not_compacted(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """The last one of its key among two records with one offset is undefined."""
    data = write(tmp_path)
    with open(data / "bad-0" / SEALED, "ab") as log:
        log.write(batch(20))
    before = tree(data / "bad-0")
    refused(klog(*COMMAND, data), data, before)


@pytest.mark.parametrize("name", ["00000000000000000000.log.swap", "00000000000000000010.log.cleaned"])
def test_an_operation_that_did_not_end_comes_first(name: str, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    data = write(tmp_path)
    (data / "bad-0" / name).write_bytes(batch(0))
    before = tree(data / "bad-0")
    refused(klog(*COMMAND, data), data, before, name)


@pytest.mark.parametrize("tail", [b"\0" * 100, batch(40)[:-7], batch(40)[:13]], ids=["zeros", "batch", "header"])
def test_a_torn_tail_of_the_active_segment_is_no_reason(tail: bytes, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """It is not read by a compaction, and the broker cuts it at its start."""
    data = write(tmp_path)
    with open(data / "bad-0" / ACTIVE, "ab") as log:
        log.write(tail)
    active = (data / "bad-0" / ACTIVE).read_bytes()
    ran = klog(*COMMAND, data)
    assert ran.exit_code == 0, ran
    assert (data / "bad-0" / ACTIVE).read_bytes() == active
    assert (data / "bad-0/00000000000000000000.log").read_bytes() == (
        data / "good-0/00000000000000000000.log"
    ).read_bytes()
    assert not (data / "bad-0" / SEALED).exists()


@pytest.mark.parametrize("jobs", ["--jobs=1", "--jobs=3"])
def test_bad_sectors_cost_their_partition(
    jobs: str, tmp_path: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path)
    log = data / "bad-0" / SEALED
    # The position identifies the file: no other is as long.
    log.write_bytes(encode.batch([Record(10, T_MS, b"k0", os.urandom(400_000))]) + log.read_bytes())
    before = tree(data / "bad-0")
    spoil(monkeypatch, range(200_000, 201_000))
    ran = klog(*COMMAND, jobs, data)
    monkeypatch.undo()
    assert ran.exit_code & 8, ran
    assert ran.stderr.count(b"bad-0") >= 1
    assert tree(data / "bad-0") == before
    assert not (data / "good-0" / SEALED).exists()


@pytest.mark.parametrize("what", ["a FIFO", "a loop", "a link to nothing", "a link"])
def test_what_is_no_file_costs_its_partition(what: str, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Somebody's mistake with one partition does not keep thousands from being compacted."""
    data = write(tmp_path)
    log = data / "bad-0" / SEALED
    content = log.read_bytes()
    log.unlink()
    if what == "a FIFO":
        os.mkfifo(log)
    elif what == "a loop":
        log.symlink_to(SEALED)
    elif what == "a link to nothing":
        log.symlink_to("nowhere")
    else:
        (data / "elsewhere.log").write_bytes(content)
        log.symlink_to(data / "elsewhere.log")
    names = os.listdir(data / "bad-0")
    ran = klog(*COMMAND, data)
    assert ran.exit_code in (4, 8), ran
    assert b"bad-0" in ran.stderr
    assert sorted(os.listdir(data / "bad-0")) == sorted(names)
    assert not (data / "good-0" / SEALED).exists()


class MeddlingDisk(HastyDisk):
    """Does something else when a file of a name is made, or closed."""

    def __init__(self, call: str, name: str, meddle: Callable[[], object]) -> None:
        self._at, self._meddle = (call, name), meddle
        self.is_done = False

    def _called(self, call: str, path: str) -> None:
        if call == self._at[0] and path.endswith(self._at[1]) and not self.is_done:
            self.is_done = True
            self._meddle()

    def create(self, path: str) -> OpenFile:
        self._called("create", path)
        return super().create(path)

    def close(self, file: OpenFile) -> None:
        self._called("close", file.path)
        super().close(file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Disk], None]:
    def use(disk: Disk) -> None:
        monkeypatch.setattr(klog.change.plan.session, "Disk", lambda: disk)
        monkeypatch.setattr(klog_cli.views.compact.compact, "Disk", lambda: disk)

    return use


def _shrink(log: Path) -> None:
    os.truncate(log, positions(log.read_bytes())[2])


def _grow(log: Path) -> None:
    with open(log, "ab") as file:
        file.write(batch(20))


def _replace(log: Path) -> None:
    """As a cleaner does that runs beside: another file with the time of the old one."""
    time, content = log.stat().st_mtime_ns, log.read_bytes()
    log.unlink()
    log.write_bytes(content[: positions(content)[3]])
    os.utime(log, ns=(time, time))


ways = pytest.mark.parametrize(
    "how", [_shrink, _grow, _replace, os.unlink], ids=["shrinks", "grows", "replaced", "vanishes"]
)


@pytest.mark.parametrize("call", ["create", "close"])
@ways
def test_a_segment_that_changes_meanwhile_costs_its_partition(
    how: Callable[[Path], None],
    call: str,
    tmp_path: Path,
    klog: Callable[..., Ran],
    disk: Callable[[Disk], None],
) -> None:
    """After the map was made, and after it was read: an unread part must not be thrown away."""
    data = write(tmp_path)
    meddling = MeddlingDisk(call, "bad-0/00000000000000000000.log", lambda: how(data / "bad-0" / SEALED))
    disk(meddling)
    ran = klog(*COMMAND, "--jobs=1", data)
    assert meddling.is_done
    assert ran.exit_code in (4, 8), ran
    assert b"bad-0" in ran.stderr
    assert (data / "bad-0/00000000000000000020.log").exists()
    assert not (data / "good-0" / SEALED).exists(), "the other partition goes on"
    assert (data / "cleaner-offset-checkpoint").read_text() == "0\n1\ngood 0 30\n"


@ways
def test_a_segment_that_changes_afterwards_keeps_all_from_being_done(
    how: Callable[[Path], None], tmp_path: Path, klog: Callable[..., Ran], disk: Callable[[Disk], None]
) -> None:
    """The plan is then stale; and its files are removed."""
    data = write(tmp_path)
    good = tree(data / "good-0")
    disk(MeddlingDisk("create", "bad-0/00000000000000000000.index", lambda: how(data / "bad-0" / SEALED)))
    ran = klog(*COMMAND, "--jobs=1", data)
    assert ran.exit_code == 8, ran
    assert b"since the plan was made" in ran.stderr
    assert tree(data / "good-0") == good
    assert (data / "bad-0/00000000000000000020.log").exists()
    assert not (data.parent / "klog-backup").exists()


CASES = 40


@pytest.mark.parametrize("number", range(CASES))
def test_random_damage_never_costs_a_record(number: int, memory: Path, klog: Callable[..., Ran]) -> None:
    """A partition is left as it is, or no key has another value than before; and undo restores every byte."""
    one = case(21, number, sources())
    data = memory / "data"
    one.make(data)
    before = tree(data)
    partitions = [path for path in data.iterdir() if path.is_dir()]
    tables = {path.name: table(_readable(path)) for path in partitions}
    contents_before = {path.name: contents(path) for path in partitions}
    ran = klog(*COMMAND, "--all", "--segment-size=100KB", data)
    assert ran.exit_code & ~(4 | 8) == 0, ran
    assert b"Traceback" not in ran.stderr
    changed = [name for name in tables if contents(data / name) != contents_before[name]]
    for name in changed:
        assert table(_readable(data / name)) == tables[name], (one.name, name)
    for plan in (data.parent / "klog-backup").glob("*"):
        assert klog("undo", plan, "--apply").exit_code == 0
    assert same(data, before), one.name


def contents(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.iterdir() if path.is_file()}


def _readable(partition: Path) -> list[Batch]:
    return [one for log in sorted(partition.glob("*.log")) for one in scan(log.read_bytes()) if isinstance(one, Batch)]
