"""`klog audit PATH…`: the findings in batch headers; sequences against a slow reference; damage, and permissions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import UnreadableError, time_text
from klog.base.read_only import ReadOnlyFile
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.audit import headers
from klog.commands.audit.header_findings import CHECKS, HEADER_KINDS
from klog.data_dir.log_dir import LogDir
from klog.partition.verify.findings import LogDirFacts, PartitionFacts

from tests.commands.audit.auditing import ARCHIVES, UNPACKED, audit, disks, log_dirs
from tests.commands.audit.clusters import MS, Cluster
from tests.conftest import CORPORA, FIXTURES, ROOT, run_klog
from tests.oracles.plain.decode import Batch, scan
from tests.oracles.plain.encode import Record, batch, marker, message

Image = Callable[[str], Path]
MAX = 2**31 - 1


def findings(*arguments: object) -> list[dict[str, Any]]:
    """Run `klog audit` and return its findings."""
    done = run_klog("audit", *map(str, arguments), "--output", "json")
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    problems = any(one["severity"] != "note" for one in found)
    assert done.exit_code == (4 if problems else 0), done.stderr
    return found


def brief(found: list[dict[str, Any]]) -> list[tuple[str, str, str, int | None, int]]:
    """Return id, severity, partition, offset and count of each."""
    return [
        (one["id"], one["severity"], f"{one['topic']}-{one['partition']}", one["offset"], one["count"]) for one in found
    ]


def only(*ids: str) -> list[str]:
    """Return the options that make only some checks."""
    return [word for one in ids for word in ("--check", one)]


def test_sequences_wrap_and_gaps_are_found_also_between_segments(tmp_path: Path) -> None:
    """2^31 - 1 is followed by 0; what does not follow is one finding a partition, with the count and the first."""
    made = Cluster()
    for sequence, count in ((MAX - 3, 3), (MAX, 2), (1, 2), (3, 1), (9, 1), (10, 2), (40, 1)):
        made.add("wraps-0", 7, count, sequence=sequence)
    made.add("wraps-0", 8, 1, sequence=0)
    for name, sequences in (("between-0", (0, 2)), ("edge-0", (MAX, 0))):
        for sequence in sequences:
            made.add(name, 7, 1, sequence=sequence)
    root = made.write(tmp_path / "data", segments=2)
    found = findings(root, *only("sequence-gap"))
    assert brief(found) == [
        ("sequence-gap", "warning", "between-0", 1, 1),
        ("sequence-gap", "warning", "wraps-0", made.offset("wraps-0", 4), 2),
    ]
    assert "producer 7 continues with 9, expected 4" in found[1]["message"]


def test_a_producer_that_begins_late_is_a_note_where_nothing_was_cut_off(tmp_path: Path) -> None:
    """After retention the first batch of a producer is some later one: that proves nothing."""
    made = Cluster()
    made.add("late-0", 7, 1, sequence=12)
    made.add("late-0", 8, 1, sequence=0)
    made.add("late-0", 8, 1, sequence=1)
    made.add("late-0", 7, 1, sequence=13)
    made.add("cut-0", 7, 1, sequence=12)
    root = made.write(tmp_path / "data", segments=2)
    (root / "log-start-offset-checkpoint").write_text("0\n1\ncut 0 1\n")
    assert brief(findings(root, *only("sequence-begins-late"))) == [("sequence-begins-late", "note", "late-0", 0, 1)]


def test_times_ahead_of_the_clock_and_behind_retention(tmp_path: Path) -> None:
    """One keeps its segment for long, the other may delete it at once."""
    week = 7 * 86_400_000
    made = Cluster()
    for number, time in enumerate((MS, MS + 1, MS + 3_600_001 + 5000, MS + 2)):
        made.put("future-0", batch([Record(number, time)]))
    for number, time in enumerate((MS, MS - week - 2, MS + 1, MS - week + 500, MS)):
        made.put("past-0", batch([Record(number, time)]))
    root = made.write(tmp_path / "data")
    found = findings(root, *only("time-future", "time-past"), "--now", MS + 5000)
    assert brief(found) == [("time-future", "warning", "future-0", 2, 1), ("time-past", "note", "past-0", 1, 1)]


def test_duplicates_waste_sizes_formats_and_codecs(tmp_path: Path) -> None:
    """A note where a producer sent again; a warning where a broker should have refused it."""
    made = Cluster()
    made.put("twice-0", again := made.add("twice-0", records=2))
    made.put("twice-0", again)
    made.put("idem-0", made.add("idem-0", 7, 2))
    for _ in range(3):
        made.add("ones-0", records=1)
    made.put("large-0", batch([Record(0, MS, None, b"x" * 1_100_000), Record(1, MS)]))
    made.add("mixed-0", records=2, codec="gzip")
    made.add("mixed-0", records=2)
    made.put("old-0", message(0, 1, b"k", b"v", timestamp=MS))
    root = made.write(tmp_path / "data")
    wanted = [one for one in CHECKS if not one.startswith("sequence")]
    found = findings(root, *only("duplicate-batch", *wanted), "--now", MS + 10**9)
    assert brief(found) == [
        ("duplicate-batch", "warning", "idem-0", 2, 1),
        ("batch-oversized", "warning", "large-0", 0, 1),
        ("codec-mixed", "note", "mixed-0", None, 2),
        ("format-old", "note", "old-0", None, 1),
        ("batches-of-one", "note", "ones-0", None, 3),
        ("duplicate-batch", "note", "twice-0", 2, 2),
    ]
    assert f"retention removes them after {time_text(MS + 7 * 86_400_000)}" in found[3]["message"]


def test_transaction_markers_are_no_data(tmp_path: Path) -> None:
    """Control batches are equal in every partition of a transaction, and hold one record each."""
    made = Cluster()
    for name in ("a-0", "b-0"):
        made.add(name, records=2)
        for _ in range(4):
            made.put(
                name,
                marker(made.end(name), commit=True, timestamp=MS, producer_id=7, producer_epoch=0, coordinator_epoch=0),
            )
    root = made.write(tmp_path / "data")
    assert findings(root) == []
    assert audit(root)["batches"] == 2


@pytest.mark.corpora
def test_an_image_with_misrouted_batches_has_a_finding_for_each_partition(image: Image) -> None:
    """Confirmed is damage, likely a warning; a partition with both has both."""
    rows = audit(*disks(image, "hand"))["misrouted"]
    found = findings(*disks(image, "hand"), *only("misrouted"))
    wanted = {}
    for row in rows:
        key = f"{row['topic']}-{row['partition']}", "damage" if row["confidence"] == "confirmed" else "warning"
        wanted[key] = wanted.get(key, 0) + 1
    assert {(f"{one['topic']}-{one['partition']}", one["severity"]): one["count"] for one in found} == wanted
    assert all("original" in one["message"] or "also" in one["message"] for one in found)


def gaps(batches: Iterator[Batch] | list[Batch]) -> list[int]:
    """Return the base offsets of batches that leave a gap in sequences: a plain reference."""
    last: dict[tuple[int, int], int] = {}
    found = []
    for one in batches:
        if one.control or one.producer_id < 0 or one.base_sequence < 0:
            continue
        key = one.producer_id, one.producer_epoch
        if key in last and one.base_sequence != (last[key] + 1) % 2**31:
            found.append(one.base_offset)
        last[key] = (one.base_sequence + one.last_offset - one.base_offset) % 2**31
    return found


IMAGES = {
    str(path.parent.relative_to(FIXTURES))
    for name in ("cleaner-offset-checkpoint", "meta.properties")
    for path in FIXTURES.rglob(name)
    if any(path.parent.glob("[!_]*-[0-9]*/*.log"))
}


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_sequence_gaps_agree_with_a_slow_reference(name: str) -> None:
    """Every partition of every log dir that real brokers wrote; compacted topics give none."""
    agree_on_gaps(FIXTURES / name)


@pytest.mark.corpora
@pytest.mark.parametrize("name", UNPACKED)
def test_sequence_gaps_agree_on_whole_disks(name: str) -> None:
    agree_on_gaps(CORPORA / name)


@pytest.mark.corpora
@pytest.mark.parametrize("archive", ARCHIVES)
def test_sequence_gaps_agree_on_every_image(archive: str, image: Image) -> None:
    for log_dir in log_dirs(image(archive)):
        agree_on_gaps(log_dir)


def agree_on_gaps(root: Path) -> None:
    log_dir = LogDir(str(root))
    around = LogDirFacts(settings=TopicConfig(log_dir))
    wanted = {}
    for partition in log_dir.partitions:
        if (
            partition.topic is None
            or partition.topic.startswith("__")
            or PartitionFacts(partition, around).is_compacted
        ):
            continue
        batches = [
            one
            for files in partition.segments
            for one in scan(Path(partition.file(files.log)).read_bytes())
            if isinstance(one, Batch)
        ]
        if found := gaps(batches):
            wanted[partition.directory] = (found[0], len(found))
    done = run_klog("audit", root, *only("sequence-gap"), "--output", "json")
    found = json.loads(done.stdout)["findings"]
    assert {f"{one['topic']}-{one['partition']}": (one["offset"], one["count"]) for one in found} == wanted


def test_an_unknown_check_is_refused_with_near_misses(tmp_path: Path) -> None:
    done = run_klog("audit", str(tmp_path), "--check", "sequence-gaps")
    assert (done.exit_code, b"did you mean sequence-gap" in done.stderr) == (16, True)


def test_neither_a_path_that_is_no_log_dir_nor_an_unreadable_log_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is still judged."""
    assert run_klog("audit", "misrouted", str(tmp_path)).exit_code == 8
    made = Cluster(1)
    for _ in range(20):
        made.add("a-0")
        made.add("b-0")
    made.put("b-0", made.partitions["a-0"][3])
    made.add("c-0")
    root = made.write(tmp_path / "data")

    def refuse(path: str) -> ReadOnlyFile:
        if "/c-0/" in path:
            raise UnreadableError(f"{path}: cannot open: Permission denied")
        return ReadOnlyFile(path)

    monkeypatch.setattr(headers, "ReadOnlyFile", refuse)
    (row,) = audit(root, exit_code=4 | 8)["misrouted"]
    assert row["topic"] == "b"


def test_damage_is_passed_over_and_a_torn_tail_is_none(tmp_path: Path) -> None:
    """A broken size in the middle costs the batch it belongs to; an end that was never written is reported, and no
    more."""
    made = Cluster(2)
    for _ in range(30):
        made.add("a-0")
        made.add("b-0")
    made.put("b-0", made.partitions["a-0"][20])
    made.add("b-0")
    torn = made.partitions["b-0"][-1]
    root = made.write(tmp_path / "data")
    log = root / "b-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[: -len(torn) // 2])
    found = audit(root)
    assert ([row["topic"] for row in found["misrouted"]], found["damage"]) == (["b"], 0)
    size_at = sum(map(len, made.partitions["b-0"][:10])) + 8
    for at in (size_at, size_at + 1, size_at + 2, size_at + 3):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        log.write_bytes(broken)
        found = audit(root, exit_code=4)
        assert [row["topic"] for row in found["misrouted"]] == ["b"], at
        assert found["damage"] >= 1
        assert found["batches"] == 30 + 31


@pytest.mark.corpora
def test_no_crash_image_ends_in_a_traceback(image: Image) -> None:
    """Wrecks of real brokers: intact batches take part, broken ones do not."""
    for archive in sorted((CORPORA / "crash").glob("v*/before.tar.gz")):
        root = image(str(archive.relative_to(CORPORA)))
        data = next(path for path in (root / "data", root) if list(path.glob("*-checkpoint")))
        done = run_klog("audit", "misrouted", str(data), "--output", "json")
        assert done.exit_code in (0, 4, 8), (archive, done.stderr)
        assert b"Traceback" not in done.stderr
        assert [row for row in json.loads(done.stdout)["misrouted"] if row["confidence"] == "confirmed"] == []
        assert run_klog("audit", str(data)).exit_code in (0, 4, 8, 12)


def test_a_read_only_tree_is_enough_and_stays_as_it_is(tmp_path: Path) -> None:
    """Nothing is created, locked or touched."""
    root = tmp_path / "data"
    shutil.copytree(FIXTURES / "modern", root)

    def state() -> list[tuple[str, int, int]]:
        return sorted(
            (str(path), path.stat().st_mtime_ns, path.stat().st_size if path.is_file() else 0)
            for path in root.rglob("*")
        )

    for path in (root, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = state()
    audit(root)
    findings(root, "--now", MS)
    assert state() == before
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_every_id_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    assert [one for one in HEADER_KINDS if f"| `{one}` |" not in text] == []
    assert set(CHECKS) | {"misrouted", "duplicate-batch"} == set(HEADER_KINDS)
