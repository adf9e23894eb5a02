"""The limits of faults: a value just within is not reported, and one further is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from klog.data_dir.partition import Partition
from klog.partition.verify import verify
from klog.partition.verify.findings import LogDirFacts
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import facts_around, survey_partition, verify_partition

from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records
from tests.partition.verify.partitions import Damageable

HEADER = struct.Struct(">qiib")  # the first bytes of a batch: its offset, its size, its leader epoch, its format


def ids(partition: Path, *, live: bool = False) -> list[str]:
    """Return the findings of a partition, beside a running broker or not."""
    found = Partition(str(partition))
    around = facts_around(found)._replace(live=live)
    return [finding.id for finding in verify_partition(found, around, SurveyOptions(True)).findings]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A log dir with a log from offset 10 to 113."""
    log_dir = Damageable(tmp_path / "data", "plain-1").path
    for path in log_dir.glob("*-checkpoint"):
        path.write_text("0\n0\n")
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nplain 1 10\n")
    return log_dir


@pytest.mark.parametrize(
    ("name", "offset", "said"),
    [
        ("replication", 9, ["high-watermark-below-start"]),
        ("replication", 10, []),
        ("replication", 113, []),
        ("replication", 114, ["high-watermark-beyond-end"]),
        ("recovery-point", 9, []),
        ("recovery-point", 113, []),
        ("recovery-point", 114, ["recovery-point-beyond-end"]),
        ("cleaner", 9, ["cleaner-offset-outside"]),
        ("cleaner", 10, []),
        ("cleaner", 113, []),
        ("cleaner", 114, ["cleaner-offset-outside"]),
        ("log-start", 113, []),
        ("log-start", 114, ["log-start-beyond-end"]),
    ],
)
def test_checkpoints_may_say_both_ends_of_the_log(plain: Path, name: str, offset: int, said: list[str]) -> None:
    (plain / f"{name}-offset-checkpoint").write_text(f"0\n1\nplain 1 {offset}\n")
    assert ids(plain / "plain-1") == said


@pytest.mark.parametrize("name", ["replication", "recovery-point"])
def test_what_a_torn_tail_takes_is_no_second_finding(plain: Path, name: str) -> None:
    (plain / f"{name}-offset-checkpoint").write_text("0\n1\nplain 1 113\n")
    log = plain / f"plain-1/{0:020}.log"
    log.write_bytes(log.read_bytes()[:-10])
    found = ids(plain / "plain-1")
    assert "torn-tail" in found
    assert not {"high-watermark-beyond-end", "recovery-point-beyond-end"} & set(found)


def test_a_directory_that_is_set_aside_needs_no_epochs(plain: Path) -> None:
    (plain / "plain-1/leader-epoch-checkpoint").unlink()
    assert "epochs-missing" in ids(plain / "plain-1")
    aside = plain / f"plain-1.{'0' * 32}-stray"
    (plain / "plain-1").rename(aside)
    assert ids(aside) == ["stray-directory"]


@pytest.mark.parametrize(("offset", "beyond"), [(750, False), (749, True)])
def test_a_snapshot_knows_what_stands_before_its_offset(tmp_path: Path, offset: int, beyond: bool) -> None:
    """A producer's last offset is below it: one at it was not there yet when the snapshot was taken."""
    partition = Damageable(tmp_path / "data", "idempotent-0").path / "idempotent-0"
    content = (partition / f"{750:020}.snapshot").read_bytes()
    for path in partition.glob("*.snapshot"):
        path.unlink()
    (partition / f"{offset:020}.snapshot").write_bytes(content)
    found = verify_partition(Partition(str(partition)), request=SurveyOptions(True)).findings
    assert any("beyond the snapshot's own" in one.message for one in found) == beyond


def test_only_the_last_segment_is_being_written(tmp_path: Path) -> None:
    """In another one a torn tail is one, with a broker beside it or not; the offsets behind it are not reported
    twice."""
    partition = Damageable(tmp_path / "data", "idempotent-0").path / "idempotent-0"
    for base, said in ((375, "torn-tail"), (750, "unfinished-append")):
        log = partition / f"{base:020}.log"
        whole = log.read_bytes()
        log.write_bytes(whole[:-10])
        found = ids(partition, live=True)
        log.write_bytes(whole)
        assert said in found
        assert not {"offset-gap", "offsets-missing"} & set(found)


# the end of a log


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A partition with the offsets 0 to 2 in its first segment, and 100 to 102 in its last; between them are none."""
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    for base in (0, 100):
        (partition / f"{base:020}.log").write_bytes(batch(some_records(base)))
    return partition


def tail(orders: Path, base: int, rest: bytes) -> list[str]:
    """Return what bytes at the end of a log are called."""
    log = orders / f"{base:020}.log"
    log.write_bytes(log.read_bytes() + rest)
    known = ("torn-tail", "garbage-tail", "zero-tail", "zeroed")
    return [one for one in ids(orders) if one in known]


@pytest.mark.parametrize(
    ("base", "offset", "magic", "said"),
    [
        (100, 103, 2, "torn-tail"),
        (100, 102, 2, "garbage-tail"),
        (100, 103 + (1 << 20), 2, "torn-tail"),
        (100, 104 + (1 << 20), 2, "garbage-tail"),
        (100, 103, 3, "garbage-tail"),
        (0, 99, 2, "torn-tail"),
        (0, 100, 2, "garbage-tail"),
    ],
)
def test_a_torn_tail_begins_like_the_batch_that_was_to_come(
    orders: Path, base: int, offset: int, magic: int, said: str
) -> None:
    """With an offset from the end of the log on, not too far from it, and below that of the next segment."""
    assert tail(orders, base, HEADER.pack(offset, 1000, 0, magic) + b"\1" * 20) == [said]


def entry(offset: int, position: int) -> bytes:
    return struct.pack(">ii", offset - 100, position)


@pytest.mark.parametrize(
    ("witness", "said"),
    [
        (None, "zero-tail"),
        ("high watermark at the end", "zero-tail"),
        ("high watermark beyond", "zeroed"),
        ("snapshot at the end", "zero-tail"),
        ("snapshot beyond", "zeroed"),
        ("index of a batch before", "zero-tail"),
        ("index of a batch there", "zeroed"),
        ("index of an offset there", "zeroed"),
    ],
)
def test_zeros_stand_where_batches_stood_when_anything_tells_of_them(
    orders: Path, witness: str | None, said: str
) -> None:
    """Otherwise they were never written: preallocated, or a file that grew before its blocks were written."""
    end = (orders / f"{100:020}.log").stat().st_size
    marks, index = orders.parent / "replication-offset-checkpoint", orders / f"{100:020}.index"
    if witness is not None and witness.startswith("high"):
        marks.write_text(f"0\n1\norders 0 {104 if 'beyond' in witness else 103}\n")
    elif witness is not None and witness.startswith("snapshot"):
        (orders / f"{104 if 'beyond' in witness else 103:020}.snapshot").write_bytes(b"")
    elif witness is not None:
        index.write_bytes(
            {"before": entry(102, end - 1), "there": entry(102, end)}[witness.split()[-1]]
            if "batch" in witness
            else entry(103, end - 1)
        )
    assert tail(orders, 100, bytes(100)) == [said]


# missing, doubled and moved batches


@pytest.mark.parametrize(
    ("first", "last", "is_in"),
    [(0, 2, False), (0, 3, True), (3, 3, True), (99, 99, True), (99, 200, True), (100, 200, False)],
)
def test_a_gap_goes_from_the_first_offset_that_is_missing_to_the_last(
    orders: Path, first: int, last: int, is_in: bool
) -> None:
    facts = survey_partition(Partition(str(orders)), LogDirFacts(), SurveyOptions())
    assert facts.gaps == [(3, 100)]
    assert facts.has_gap(first, last) == is_in


@pytest.mark.parametrize("why", [None, "a gap", "compacted"])
def test_a_snapshot_is_not_held_against_what_is_missing(tmp_path: Path, why: str | None) -> None:
    """The broker had batches that are missing now: lost with a segment, or cleaned away."""
    log_dir = Damageable(tmp_path / "data", "idempotent-0").path
    partition = log_dir / "idempotent-0"
    (partition / f"{750:020}.snapshot").write_bytes((partition / f"{375:020}.snapshot").read_bytes())
    if why == "a gap":
        for path in partition.glob(f"{110:020}.*"):
            path.unlink()
    elif why == "compacted":
        (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nidempotent 0 300\n")
    assert ("snapshot-disagrees" in ids(partition)) == (why is None)


def test_names_without_an_offset_are_foreign_and_not_twice_the_same(plain: Path) -> None:
    for name in ("saved.log", "other.log"):
        (plain / "plain-1" / name).write_bytes(b"")
    assert ids(plain / "plain-1") == ["foreign-log-name"] * 2


@pytest.mark.parametrize("is_healed", [True, False])
def test_beside_a_running_broker_a_problem_counts_when_it_is_there_again(
    plain: Path, monkeypatch: pytest.MonkeyPatch, is_healed: bool
) -> None:
    """Files move while they are read, and every mixture of before and after can look like damage."""
    log = plain / f"plain-1/{0:020}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:100] + bytes((whole[100] ^ 1,)) + whole[101:])
    monkeypatch.setattr(verify.time, "sleep", lambda seconds: log.write_bytes(whole) if is_healed else None)
    assert ids(plain / "plain-1", live=True) == ([] if is_healed else ["bad-crc"])


# more than are reported one by one


def ids_of_log(folder: Path, *batches: bytes) -> list[str]:
    """Return the findings of a log of these batches, each kind once."""
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return sorted(set(ids(folder)) - {"index-missing", "time-index-missing", "epochs-missing"})


def test_thousands_of_gaps_are_no_damage_and_hide_none(tmp_path: Path) -> None:
    """Compaction leaves them: without a finding about a batch in the wrong place, salvage had nothing to do."""
    gappy = [batch(some_records(3 * at, 1)) for at in range(2500)]
    assert ids_of_log(tmp_path / "one/orders-0", *gappy) == ["offset-gap"]
    assert ids_of_log(tmp_path / "two/orders-0", *gappy, batch(some_records(5, 1))) == [
        "offset-gap",
        "offsets-backwards",
    ]


def test_more_oddities_than_are_told_one_by_one_are_counted(tmp_path: Path) -> None:
    twice = [batch(some_records(0))] * 1002
    assert "more-damage" not in ids_of_log(tmp_path / "one/orders-0", *twice[:1001])
    assert "more-damage" in ids_of_log(tmp_path / "two/orders-0", *twice)
