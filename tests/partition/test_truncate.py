"""A cut log: exactly the batches before the cut are left, and every other file agrees."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from klog.base.errors import DamagedError, KlogError, UsageError
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft, backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.model import STAGED, Plan
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.formats.damage import Damage
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c
from klog.log.segment import Segment
from klog.partition.truncate import TruncateOptions, Truncation, plan
from klog.partition.verify.findings import Severity

from tests.commands.dump.sinks import bytes_read
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.broker_load import Loader, Outcome, differences
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record
from tests.oracles.plain.shapes import some_records
from tests.partition.verify.partitions import Damageable, findings_in
from tests.support.examples import examples
from tests.support.power import HastyDisk, Tree, copy_of, cut_everywhere, take_back, tree
from tests.support.samples import some_or_all

MODERN, LEGACY = FIXTURES / "modern", FIXTURES / "legacy"
NOW_MS = 1_750_000_100_000
"""A time at which none of the producers in the fixtures has been idle for a day."""
DAY_MS = 86_400_000
SETTINGS = TruncateOptions(NOW_MS, DAY_MS)
MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS, HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"


class Cut(NamedTuple):
    """The result of a cut; *plan* has no actions when there was nothing to do."""

    said: Truncation
    plan: Plan


def cut(data: Path, directory: str, to_offset: int, disk: Disk | None = None, how: TruncateOptions = SETTINGS) -> Cut:
    """Cut a partition of the log dir *data*."""
    disk = disk or HastyDisk()
    log_dir = LogDir(str(data))
    partition = log_dir.partition(directory)
    name = plan_id("truncate", NOW_MS)
    backups = backup_places(name, [str(data)])
    staging = Staging(os.path.join(backups[0], STAGED), disk)
    drafts = [Draft(str(data), 0, staging), Draft(str(data), 0, staging)]
    said = plan(partition, to_offset, how, drafts[0])
    key = (partition.topic or "", partition.number or 0)
    checkpoints.plan(log_dir, {kind: {key: value} for kind, value in said.offsets.items()}, drafts[1], mend=False)
    made = make_plan(name, "klog truncate", [str(data)], backups, drafts, NOW_MS, losses=said.losses, kept=said.kept)
    if made.actions:
        apply(made, disk)
    return Cut(said, made)


class Batch(NamedTuple):
    """The place of a batch, and its content."""

    log: str
    position: int
    end: int
    base_offset: int
    last_offset: int
    records: int


def batches(folder: Path) -> list[Batch]:
    """Return all batches of an intact partition."""
    found = []
    for path in sorted(folder.glob("*.log")):
        for one in Segment(str(path)).batches():
            assert not isinstance(one, Damage)
            end = one.position + one.size
            records = max(one.records_count, 0) or int(one.magic < 2)
            found.append(Batch(path.name, one.position, end, one.base_offset, one.last_offset, records))
    return found


def entry(data: Path, checkpoint: str, directory: str) -> int | None:
    """Return a checkpoint's entry for a partition in a log dir."""
    path = data / checkpoint
    if not path.exists():
        return None
    lines = (line.split() for line in path.read_text().splitlines()[2:])
    return next((int(offset) for topic, number, offset in lines if f"{topic}-{number}" == directory), None)


def epochs(folder: Path) -> list[str]:
    path = folder / EPOCHS
    return path.read_text().splitlines()[2:] if path.exists() else []


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a log dir with some partitions of fixtures/modern."""

    def make(*names: str, clean: bool = True) -> Path:
        folder = Damageable(tmp_path / "data", *names).path
        if not clean:
            (folder / MARKER).unlink()
        return folder

    return make


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


# laws of every cut


def check(data: Path, original: Path, directory: str, to_offset: int, done: Cut) -> None:
    """Check that *data* is *original* without the part from *to_offset* on."""
    folder, before = data / directory, batches(original / directory)
    end, segments = done.said.log_end, sorted(int(path.stem) for path in (original / directory).glob("*.log"))
    kept = [one for one in before if one.last_offset < to_offset]
    left = [base for base in segments if base <= to_offset]
    active = left[-1]
    assert end == max((one.last_offset + 1 for one in kept if one.log == f"{active:020}.log"), default=active)
    # The logs, byte by byte.
    logs = {path.name: path.read_bytes() for path in folder.glob("*.log")}
    assert sorted(logs) == [f"{base:020}.log" for base in left]
    for name, content in logs.items():
        size = max((one.end for one in kept if one.log == name), default=0)
        assert content == (original / directory / name).read_bytes()[:size], name
    # The announced amounts.
    gone = [one for one in before if one.last_offset >= to_offset]
    assert sum(loss.records or 0 for loss in done.said.losses) == sum(one.records for one in gone)
    assert sum(loss.bytes for loss in done.said.losses) == sum(one.end - one.position for one in gone)
    assert sum(loss.bytes for loss in done.plan.losses) == sum(one.end - one.position for one in gone)
    assert done.said.kept.bytes == sum(one.end - one.position for one in kept)
    is_counted = {one.log for one in kept} <= {f"{active:020}.log"}
    assert done.said.kept.records == (sum(one.records for one in kept) if is_counted else None)
    if gone:
        assert min(loss.first_offset or 0 for loss in done.said.losses) == gone[0].base_offset
        span = gone[0].base_offset, gone[0].last_offset
        assert done.said.inside == (span if span[0] < to_offset else None)
    # The files beside them.
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex"):
            assert f"{path.stem}.log" in logs, path.name
        if path.suffix == ".snapshot":
            assert int(path.stem) <= end, path.name
    if gone:
        assert [line for line in epochs(original / directory) if int(line.split()[1]) < end] == epochs(folder)
        assert (folder / f"{end:020}.snapshot").exists() == (
            end > (entry(data, "log-start-offset-checkpoint", directory) or 0)
        )
    for checkpoint, limit in ((RECOVERY_POINTS, end), (HIGH_WATERMARKS, end), (CLEANER, active)):
        said = entry(original, checkpoint, directory)
        assert entry(data, checkpoint, directory) == (None if said is None else min(said, limit)), checkpoint


def untouched(data: Path, original: Path, directory: str) -> None:
    """See that nothing else of the log dir has changed."""
    ours, theirs = tree(data), tree(original)
    its_own = {".", ".lock", RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER}
    for name in ours.keys() | theirs.keys():
        if name not in its_own and name.split("/")[0] != directory:
            assert ours[name] == theirs[name], name


def bytes_of_logs(found: Tree) -> int:
    return sum(len(content or b"") for name, (content, _) in found.items() if name.endswith(".log"))


WHERE = st.one_of(
    st.tuples(st.just("idempotent-0"), st.integers(0, 810)),
    st.tuples(st.just("tx-0"), st.integers(0, 655)),
    st.tuples(st.just("tx-open-0"), st.integers(0, 50)),
    st.tuples(st.just("plain-1"), st.integers(0, 120)),
    st.tuples(st.just("zstd-0"), st.integers(0, 280)),
    st.tuples(st.just("v0-none-0"), st.integers(0, 405)),
    st.tuples(st.just("v1-gzip-0"), st.integers(0, 405)),
    st.tuples(st.just("changing-0"), st.integers(0, 275)),
)


def log_dir_with(directory: str, target: Path) -> Path:
    """Copy a log dir of fixtures/ with one of its partitions."""
    source = MODERN if (MODERN / directory).is_dir() else LEGACY
    writable_copy(source / directory, target / directory)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, target / path.name)
    if not (target / directory / "partition.metadata").exists():
        # Without an identity a broker sets it aside.
        (target / directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    return target


def cut_and_check(directory: str, to_offset: int) -> None:
    """Cut, look at everything, cut again, take it back."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        original = log_dir_with(directory, Path(place) / "original" / "data")
        log_dir = copy_of(original, Path(place) / "cut")
        done = cut(log_dir, directory, to_offset)
        check(log_dir, original, directory, to_offset, done)
        untouched(log_dir, original, directory)
        assert [one for one in findings_in(log_dir) if one.severity is not Severity.NOTE] == []
        assert cut(log_dir, directory, to_offset).plan.actions == ()
        if done.plan.actions:
            take_back(done.plan, HastyDisk())
        assert {**tree(log_dir), ".lock": 0} == {**tree(original), ".lock": 0}


@examples(70)
@given(WHERE)
@example(("tx-0", 0))
@example(("tx-0", 16))
@example(("tx-0", 505))
@example(("tx-0", 648))
@example(("idempotent-0", 375))
@example(("changing-0", 180))
def test_wherever_a_log_is_cut_all_its_files_agree(where: tuple[str, int]) -> None:
    """Afterwards there is nothing to find and nothing to do, and undo leaves no trace."""
    cut_and_check(*where)


def test_every_offset_of_an_open_transaction_can_be_cut_to() -> None:
    """Also where the transaction, a batch or the log begins and ends."""
    for to_offset in range(47):
        cut_and_check("tx-open-0", to_offset)


def test_where_offsets_are_missing_the_log_ends_where_its_last_segment_says(tmp_path: Path) -> None:
    """A segment that begins before the cut stays, be it empty; offsets that compaction took are not given again."""
    folder = tmp_path / "data" / "gappy-0"
    folder.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").touch()
    (folder / f"{0:020}.log").write_bytes(encode.batch(some_records(3)) + encode.batch(some_records(50)))
    (folder / f"{100:020}.log").write_bytes(encode.batch(some_records(120)))
    done = cut(tmp_path / "data", "gappy-0", 110)
    assert (done.said.log_end, done.said.inside, done.said.kept.records) == (100, None, None)
    assert (folder / f"{100:020}.log").read_bytes() == b""
    done = cut(tmp_path / "data", "gappy-0", 99)
    assert (done.said.log_end, done.plan.losses) == (53, ())
    assert not (folder / f"{100:020}.log").exists()
    assert cut(tmp_path / "data", "gappy-0", 99).plan.actions == ()


# where it is cut, in words


def test_a_cut_inside_of_a_batch_says_where_the_batch_begins(data: Callable[..., Path]) -> None:
    """An operator who requested 105 has to know that 100 to 104 were deleted as well."""
    log_dir = data("idempotent-0")
    inside = next(one for one in batches(log_dir / "idempotent-0") if one.last_offset > one.base_offset)
    done = cut(log_dir, "idempotent-0", inside.last_offset)
    assert done.said.inside == (inside.base_offset, inside.last_offset)
    assert done.said.log_end == inside.base_offset
    assert done.said.losses[0].first_offset == inside.base_offset


def test_a_cut_below_the_start_of_the_log_is_refused(data: Callable[..., Path]) -> None:
    log_dir = data("trimmed-0")
    before = tree(log_dir)
    with pytest.raises(UsageError, match="--to-offset 136: the log starts at 137"):
        cut(log_dir, "trimmed-0", 136)
    with pytest.raises(UsageError):
        cut(log_dir, "trimmed-0", -1)
    assert tree(log_dir) == before


def test_a_cut_at_the_start_of_the_log_leaves_an_empty_segment_there(data: Callable[..., Path]) -> None:
    """The batch that holds the start begins below it: what would be left no broker would load, and none could read."""
    log_dir = data("trimmed-0")
    done = cut(log_dir, "trimmed-0", 137)
    folder = log_dir / "trimmed-0"
    logs = {path.name: path.stat().st_size for path in folder.glob("*.log")}
    assert (done.said.log_end, logs) == (137, {f"{137:020}.log": 0})
    assert entry(log_dir, HIGH_WATERMARKS, "trimmed-0") == entry(log_dir, RECOVERY_POINTS, "trimmed-0") == 137
    assert [one.id for one in findings_in(log_dir) if one.severity is not Severity.NOTE] == []
    assert cut(log_dir, "trimmed-0", 137).plan.actions == ()


def test_at_the_end_and_beyond_it_nothing_is_to_be_done(data: Callable[..., Path]) -> None:
    log_dir = data("idempotent-0")
    before = tree(log_dir)
    for to_offset in (800, 801, 2**62):
        assert cut(log_dir, "idempotent-0", to_offset).plan.actions == ()
    assert tree(log_dir) == before
    assert not (log_dir.parent / "klog-backup").exists()


def test_a_directory_without_a_segment_is_nothing_to_cut(data: Callable[..., Path]) -> None:
    log_dir = data("plain-1")
    for path in (log_dir / "plain-1").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="there is no segment"):
        cut(log_dir, "plain-1", 0)


# the cost


def test_a_cut_at_the_end_of_a_gibibyte_reads_less_than_a_mebibyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: None
) -> None:
    """The content of earlier segments does not matter: of a TiB only the segment that is cut is read."""
    folder = tmp_path / "data" / "large-0"
    folder.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").touch()
    for base in range(0, 1600, 100):
        log = folder / f"{base:020}.log"
        log.write_bytes(encode.batch(some_records(base)))
        os.truncate(log, 64 << 20)
    with (folder / f"{1600:020}.log").open("wb") as last:
        for at in range(1600, 1900, 3):
            last.write(encode.batch(some_records(at)))
    (folder / f"{1600:020}.snapshot").write_bytes(encode.snapshot([]))
    size, gone = (folder / f"{1600:020}.log").stat().st_size, len(encode.batch(some_records(1897)))
    for apply_it in ((), ("--apply",)):
        with monkeypatch.context() as patches:
            counted = bytes_read(patches)
            ran = run_klog("truncate", folder, "--to-offset", "1897", *apply_it, "--output", "json")
        kept = json.loads(ran.stdout)["kept"]
        assert (ran.exit_code, kept["records"], kept["bytes"] - (1 << 30)) == (0, None, size - gone)
        assert sum(counted) < 1 << 20
    again = run_klog("truncate", folder, "--to-offset", "1897")
    assert again.stdout == b"nothing to do: the log ends at 1897\n"


# facts that have to agree


def test_a_clean_stop_stays_one(data: Callable[..., Path]) -> None:
    """All files are as after a clean stop, and no broker has to recover hours of other partitions."""
    log_dir = data("tx-0", "plain-1")
    marker = (log_dir / MARKER).read_bytes()
    cut(log_dir, "tx-0", 300)
    assert (log_dir / MARKER).read_bytes() == marker


def test_checkpoints_go_down_to_the_cut_and_never_up(data: Callable[..., Path]) -> None:
    """The recovery point of a killed broker lies below its log end, and everything above it is to be looked at."""
    log_dir = data("idempotent-0", "plain-1")
    (log_dir / RECOVERY_POINTS).write_text("0\n2\nidempotent 0 50\nplain 1 113\n")
    (log_dir / HIGH_WATERMARKS).write_text("0\n2\nplain 1 113\nidempotent 0 700\n")
    (log_dir / CLEANER).write_text("0\n2\nidempotent 0 375\nplain 1 9\n")
    cut(log_dir, "idempotent-0", 300)
    assert (log_dir / RECOVERY_POINTS).read_text() == "0\n2\nidempotent 0 50\nplain 1 113\n"
    assert (log_dir / HIGH_WATERMARKS).read_text() == "0\n2\nplain 1 113\nidempotent 0 300\n"
    assert (log_dir / CLEANER).read_text() == "0\n2\nidempotent 0 210\nplain 1 9\n"


def test_leader_epochs_from_the_cut_on_go(data: Callable[..., Path]) -> None:
    """A follower that requests the end of an epoch receives the present end, not the former one."""
    log_dir = data("idempotent-0")
    path = log_dir / "idempotent-0" / EPOCHS
    path.write_text("0\n4\n1 0\n2 100\n3 300\n4 700\n")
    cut(log_dir, "idempotent-0", 500)
    assert epochs(log_dir / "idempotent-0") == ["1 0", "2 100", "3 300"]
    cut(log_dir, "idempotent-0", 300)
    assert epochs(log_dir / "idempotent-0") == ["1 0", "2 100"]
    path.unlink()
    cut(log_dir, "idempotent-0", 100)
    assert not path.exists()


def test_producers_at_the_new_end_are_those_that_a_broker_wrote_there(data: Callable[..., Path]) -> None:
    """A damaged snapshot, or none, is no reason to forget them: the next write of a producer would be refused."""
    log_dir = data("idempotent-0")
    path = log_dir / "idempotent-0" / f"{375:020}.snapshot"
    theirs = path.read_bytes()
    path.write_bytes(theirs[:-1] + bytes([theirs[-1] ^ 0xFF]))
    done = cut(log_dir, "idempotent-0", 375)
    ours = read_snapshot(path.read_bytes(), crc32c)
    assert ours.problem is None
    assert ours.producers == read_snapshot(theirs, crc32c).producers != ()
    take_back(done.plan, HastyDisk())
    path.unlink()
    cut(log_dir, "idempotent-0", 375)
    assert read_snapshot(path.read_bytes(), crc32c).producers == ours.producers


def test_producers_that_were_idle_for_long_are_forgotten_as_by_a_broker(data: Callable[..., Path]) -> None:
    """As of the time that is given, of those that are loaded; whoever writes behind them is known."""
    log_dir = data("idempotent-0")
    known = {}
    for days in (0, 1000):
        done = cut(log_dir, "idempotent-0", 740, how=SETTINGS._replace(now_ms=NOW_MS + days * DAY_MS))
        path = log_dir / "idempotent-0" / f"{done.said.log_end:020}.snapshot"
        known[days] = {one.producer_id for one in read_snapshot(path.read_bytes(), crc32c).producers}
        take_back(done.plan, HastyDisk())
    assert known[1000] < known[0]
    path = log_dir / "idempotent-0" / f"{375:020}.snapshot"
    theirs = path.read_bytes()
    cut(log_dir, "idempotent-0", 375, how=SETTINGS._replace(now_ms=NOW_MS + 1000 * DAY_MS))
    assert path.read_bytes() == theirs, "what a broker has written needs no other"


@pytest.mark.parametrize("to_offset", [12, 14, 17])
@pytest.mark.parametrize("days", [0, 2])
def test_who_was_forgotten_before_a_cut_is_no_finding_behind_it(tmp_path: Path, to_offset: int, days: int) -> None:
    """The marker of a producer that continues after a day is not in a cut's snapshot, as in a broker's.

    Nor in a repair's.
    """
    ms, of = 1_700_000_000_000, {"transactional": True}
    data, partition = tmp_path / "data", tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 22)
    first = encode.batch([Record(i, ms) for i in range(6)], producer=(7, 0, 0), **of)  # type: ignore[arg-type]
    ended = encode.marker(6, commit=True, timestamp=ms, producer_id=7, producer_epoch=0, coordinator_epoch=4)
    later = [
        encode.batch([Record(i + j, ms) for j in range(5)], producer=(7, 0, i - 1), **of)  # type: ignore[arg-type]
        for i in (7, 12, 17)
    ]
    (partition / f"{0:020}.log").write_bytes(first + ended)
    (partition / f"{7:020}.log").write_bytes(b"".join(later))
    (partition / f"{7:020}.snapshot").write_bytes(encode.snapshot([encode.Producer(7, 0, 5, 5, 5, ms, 4)]))
    done = cut(data, "orders-0", to_offset, how=TruncateOptions(ms + days * DAY_MS, DAY_MS))
    written = read_snapshot((partition / f"{done.said.log_end:020}.snapshot").read_bytes(), crc32c).producers
    assert [one.coordinator_epoch for one in written] == [-1 if days else 4]
    assert not [one for one in findings_in(data) if one.id.startswith("snapshot")]
    path = partition / f"{done.said.log_end:020}.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    assert [one.id for one in findings_in(data) if one.id.startswith("snapshot")] == ["snapshot-corrupt"]
    run_klog("recover", data, "--apply")
    assert [one.coordinator_epoch for one in read_snapshot(path.read_bytes(), crc32c).producers] == [-1]
    assert not [one for one in findings_in(data) if one.id.startswith("snapshot")]
    assert b".snapshot" not in run_klog("recover", data).stdout


def test_indexes_follow_the_interval(data: Callable[..., Path]) -> None:
    log_dir = data("dense-0")
    sizes = {}
    for interval in (1, 4096):
        done = cut(log_dir, "dense-0", 140, how=SETTINGS._replace(interval=interval))
        sizes[interval] = (log_dir / "dense-0" / f"{98:020}.index").stat().st_size
        take_back(done.plan, HastyDisk())
    assert sizes[1] > 4 * sizes[4096] > 0


# damage, and what did not end


@pytest.mark.parametrize("where", ["before", "at", "behind"])
def test_damage_stops_a_cut_only_where_something_is_to_stay_behind_it(data: Callable[..., Path], where: str) -> None:
    """A cut must not look like a repair; but cutting damage away is a purpose of a cut."""
    log_dir = data("idempotent-0")
    found = [one for one in batches(log_dir / "idempotent-0") if one.log == f"{375:020}.log"]
    spoilt = found[len(found) // 2]
    path = log_dir / "idempotent-0" / spoilt.log
    content = bytearray(path.read_bytes())
    content[spoilt.position + 70] ^= 0xFF
    path.write_bytes(content)
    to_offset = spoilt.base_offset + {"before": 100, "at": 0, "behind": -1}[where]
    before = tree(log_dir)
    if where == "before":
        with pytest.raises(DamagedError) as raised:
            cut(log_dir, "idempotent-0", to_offset)
        assert f"cut there (--to-offset {spoilt.base_offset}), or first: klog recover {log_dir}" in str(raised.value)
        assert f"@ {spoilt.position}" in str(raised.value)
        assert raised.value.exit_code == 4
        assert tree(log_dir) == before
        to_offset = spoilt.base_offset
    done = cut(log_dir, "idempotent-0", to_offset)
    kept = found[: len(found) // 2 - (where == "behind")]
    assert done.said.log_end == kept[-1].last_offset + 1
    assert path.read_bytes() == content[: kept[-1].end]
    assert sum(loss.bytes for loss in done.said.losses) == bytes_of_logs(before) - bytes_of_logs(tree(log_dir))
    assert [one for one in findings_in(log_dir) if one.severity is not Severity.NOTE] == []
    take_back(done.plan, HastyDisk())
    assert {**tree(log_dir), ".lock": 0} == {**before, ".lock": 0}


def test_a_torn_tail_goes_with_what_stands_before_it(data: Callable[..., Path]) -> None:
    """The cut lies before it; the content of the torn bytes is not counted, but their bytes are."""
    log_dir = data("plain-1")
    path = log_dir / "plain-1" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-10])
    size = path.stat().st_size
    done = cut(log_dir, "plain-1", 50)
    assert done.said.log_end <= 50
    assert done.said.losses[0].bytes == size - path.stat().st_size
    assert [one for one in findings_in(log_dir) if one.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("suffix", [".swap", ".cleaned", ".deleted"])
def test_what_did_not_end_comes_first(data: Callable[..., Path], suffix: str) -> None:
    """A `.swap` that a broker would finish at its next start would restore the cut part."""
    log_dir = data("plain-1")
    (log_dir / "plain-1" / f"{0:020}.log{suffix}").touch()
    with pytest.raises(DamagedError, match="it has an interrupted operation; first: klog recover "):
        cut(log_dir, "plain-1", 50)


def test_epochs_that_no_broker_reads_come_first(data: Callable[..., Path]) -> None:
    log_dir = data("plain-1")
    (log_dir / "plain-1" / EPOCHS).write_text("0\n2\n1 0\n")
    with pytest.raises(DamagedError, match=f"{EPOCHS}, .*; first: klog recover "):
        cut(log_dir, "plain-1", 50)


def test_offsets_that_do_not_ascend_come_first(data: Callable[..., Path]) -> None:
    """The choice between two batches with one offset is undefined."""
    log_dir = data("plain-1")
    path = log_dir / "plain-1" / f"{0:020}.log"
    log = encode.batch(some_records(0)) + encode.batch(some_records(20)) + encode.batch(some_records(10))
    path.write_bytes(log + encode.batch(some_records(30)))
    with pytest.raises(DamagedError, match="batches are not in order; first: klog recover "):
        cut(log_dir, "plain-1", 30)


# beside Kafka

KAFKA_CUTS = [
    ("idempotent-0", (10, 110, 300, 375, 700, 790)),
    ("tx-0", (16, 130, 138, 360, 500, 646)),
    ("tx-open-0", (20, 44)),
    ("dense-0", (70, 98, 120)),
    ("zstd-0", (150,)),
    ("v1-gzip-0", (150,)),
]
# Several old messages were appended at once: an index of then has other entries than one made from the log.
START_CUTS = [*KAFKA_CUTS, ("v0-none-0", (100, 160, 399)), ("changing-0", (100, 180, 200))]
INTERVALS = {"dense-0": 1}


def time_entries(path: Path) -> set[bytes]:
    return {path.read_bytes()[at : at + 12] for at in range(0, path.stat().st_size, 12)} if path.exists() else set()


def interval_of(directory: str) -> tuple[TruncateOptions, dict[str, str]]:
    """Return the index interval of a topic, for klog and for Kafka."""
    interval = INTERVALS.get(directory, 4096)
    return SETTINGS._replace(interval=interval), {"log.index.interval.bytes": str(interval)}


def apart(ours: Path, theirs: Path) -> list[str]:
    """Return the files in which two partitions differ, without differences that no reader can see.

    A start removes the snapshots that belong to no segment, but for the last: they only save it time.  A time index
    that a cut has emptied stays empty until the next append, while a start makes its last entry: ours has that.  If
    there are no leader epochs, a start writes an empty file.
    """
    bases = {path.stem for path in ours.glob("*.log")}
    last = max((path.stem for path in ours.glob("*.snapshot")), default="")
    found = []
    for line in differences(ours, theirs):
        path = ours / line.split(":")[0]
        is_stray = path.suffix == ".snapshot" and path.stem not in bases | {last} and not (theirs / path.name).exists()
        has_more = path.suffix == ".timeindex" and time_entries(theirs / path.name) < time_entries(path)
        is_no_epochs = path.name == EPOCHS and not path.exists() and epochs(theirs) == []
        if not (is_stray or has_more or is_no_epochs):
            found.append(line)
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize(("directory", "offsets"), KAFKA_CUTS, ids=[name for name, _ in KAFKA_CUTS])
def test_a_cut_leaves_what_a_follower_leaves(
    directory: str, offsets: tuple[int, ...], clean: bool, loader: Loader, tmp_path: Path
) -> None:
    """UnifiedLog.truncateTo of a broker between its start and its stop: logs, all indexes, producers and epochs.

    Offsets are moved to where a batch ends: a follower remembers a cut inside of a batch, as long as it runs.
    """
    how, load_with = interval_of(directory)
    for offset in offsets:
        ours, theirs = (log_dir_with(directory, tmp_path / f"{offset}-{who}") for who in ("ours", "theirs"))
        if not clean:
            (ours / MARKER).unlink()
            (theirs / MARKER).unlink()
        at = max(one.last_offset + 1 for one in batches(ours / directory) if one.last_offset < offset)
        assert cut(ours, directory, at, how=how).said.log_end == at
        assert loader.load(theirs, load_with, now_ms=NOW_MS, cuts={directory: at}) == Outcome("ok")
        assert apart(ours / directory, theirs / directory) == []
        assert entry(ours, RECOVERY_POINTS, directory) == (at if clean else entry(ours, RECOVERY_POINTS, directory))


@pytest.mark.kafka
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize(("directory", "offsets"), START_CUTS, ids=[name for name, _ in START_CUTS])
def test_a_broker_that_starts_on_a_cut_log_changes_nothing(
    directory: str, offsets: tuple[int, ...], clean: bool, loader: Loader, tmp_path: Path
) -> None:
    """Neither where it believes the checkpoints, nor where it looks at every batch; inside of batches too."""
    how, load_with = interval_of(directory)
    for offset in offsets:
        ours = log_dir_with(directory, tmp_path / f"{offset}-ours")
        end = cut(ours, directory, offset + 3, how=how).said.log_end
        if not clean:
            (ours / MARKER).unlink()
        theirs = writable_copy(ours, tmp_path / f"{offset}-theirs")
        assert loader.load(theirs, load_with, now_ms=NOW_MS) == Outcome("ok")
        assert apart(ours / directory, theirs / directory) == []
        assert entry(theirs, RECOVERY_POINTS, directory) == end


# a power cut in the middle of a cut


@some_or_all
def test_a_cut_survives_a_power_cut_at_any_call(tmp_path: Path, every: int) -> None:
    """Later segments are deleted, one is cut, a snapshot is made, checkpoints change: it can stop anywhere, and be
    finished."""
    original = log_dir_with("tx-0", tmp_path / "original")
    assert (
        cut_everywhere(original, tmp_path, lambda data, disk: cut(data, "tx-0", 640, disk), every=every) > 300 // every
    )


# any content


def harm(log_dir: Path, random: Random) -> None:
    """Take away, flip, cut short, zero or put in something in a file or two of a log dir."""
    for _ in range(random.choice([1, 1, 2, 3])):
        path = random.choice(sorted(path for path in log_dir.rglob("*") if path.is_file()))
        content, way = bytearray(path.read_bytes()), random.randrange(5)
        if not content or way == 0:
            path.unlink()
            continue
        at = random.randrange(len(content))
        if way == 1:
            content[at] ^= 1 << random.randrange(8)
        elif way == 2:
            del content[at:]
        elif way == 3:
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        else:
            content[at:at] = random.randbytes(random.choice([1, 4, 8, 100]))
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(120))
def test_a_damaged_partition_is_cut_or_refused_and_never_made_worse(seed: int, tmp_path: Path) -> None:
    """No kind of damage appears that was not there; a second cut has nothing to do; undo brings back every byte."""
    random = Random(seed)
    directory = random.choice(["tx-0", "idempotent-0", "tx-open-0", "changing-0", "v1-gzip-0", "dense-0"])
    log_dir = log_dir_with(directory, tmp_path / "data")
    harm(log_dir, random)
    before, found = tree(log_dir), {one.id for one in findings_in(log_dir) if one.severity is not Severity.NOTE}
    to_offset = random.randrange(900)
    try:
        done = cut(log_dir, directory, to_offset)
    except KlogError:
        done = None
    if done is None:
        assert tree(log_dir) == before
        return
    assert {one.id for one in findings_in(log_dir) if one.severity is not Severity.NOTE} <= found
    assert cut(log_dir, directory, to_offset).plan.actions == ()
    if done.plan.actions:
        take_back(done.plan, HastyDisk())
    assert {**tree(log_dir), ".lock": 0} == {**before, ".lock": 0}
