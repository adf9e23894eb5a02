"""`klog remote fetch`: both tiers of a partition as one local log, byte for byte, whatever interrupts it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from klog.base.progress import Silence
from klog.commands.remote import RemoteQuery
from klog.commands.remote.fetch import fetch_remote
from klog.commands.remote.fetch_options import FetchOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.tier.tier import open_tier

from tests.commands.remote.test_ls import KEYS, Klog, document
from tests.support import tiers
from tests.support.power import (
    MODELS,
    DeadlyDisk,
    FaultyDisk,
    KilledError,
    PowerCutDisk,
    PowerCutError,
    SteppedDisk,
)
from tests.support.samples import some_or_all
from tests.support.tiers import IMAGES, Situation, situation


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def fetched(klog: Klog, found: Situation, to: Path, *more: object, codes: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """Fetch; return the partitions by name."""
    keys = KEYS if "encrypted" in found.name else []
    words = ("remote", "fetch", *found.data, "--remote", found.tier, "--to", to, "-o", "json", *keys, *more)
    return {f"{one['topic']}-{one['partition']}": one for one in document(klog(*words), *codes)["partitions"]}


def contents(folder: Path) -> dict[str, bytes]:
    """All files, without the date in `meta.properties`, and without the lock that a kill leaves."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return {
        name: re.sub(rb"#.*\n", b"", data) if name.endswith("meta.properties") else data for name, data in found.items()
    }


def served(klog: Klog, partition: Path, isolation: str, first: int = 0) -> list[list[Any]]:
    """The data records of a local log, as a consumer gets them."""
    start = ("--from-offset", str(first))
    done = klog("dump", partition, "-o", "jsonl", "--no-control", "--isolation", isolation, *start)
    assert done.exit_code == 0 or b"ends at" in done.stderr, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    return [[row["offset"], row["timestamp"], row["key"], row["value"]] for row in rows]


WHOLE = [one for one in IMAGES if one[0] != "damaged"]


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), WHOLE)
def test_a_fetched_log_is_the_partition(
    klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str, moment: str
) -> None:
    """It verifies clean in depth, and has the records that consumers got, in both isolation levels."""
    found, to = situation(image, name, moment), tmp_path / "back"
    shown = fetched(klog, found, to)
    checked = document(klog("verify", to, "--deep", "-o", "json"), 0, 4)
    problems = {one["id"] for one in checked["findings"] if one["severity"] != "note"}
    assert problems <= ({"offset-gap", "sequence-gap"} if name == "gappy" else set())  # it was compacted
    for partition, answers in found.clients.items():
        if partition not in shown or not isinstance(answers["offsets"]["earliest"], int):
            continue
        one = shown[partition]
        assert (one["first_offset"], one["log_end_offset"]) == (
            answers["offsets"]["earliest"],
            answers["offsets"]["latest"],
        )
        assert (one["holes"], one["damaged"]) == ([], [])
        first = one["first_offset"]
        rows = served(klog, to / partition, "read_uncommitted", first)
        theirs = [row[:4] for row in answers["uncommitted"]]
        if name != "unclean-tail":  # there a real broker served records of the dead branch
            assert rows == theirs
        assert [row[0] for row in served(klog, to / partition, "read_committed", first)] == answers["committed"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "gappy", "unclean"])
def test_logs_and_indexes_are_the_bytes_of_the_tiers(
    klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    found, to = situation(image, name), tmp_path / "back"
    listed = document(klog("remote", "ls", *found.data, "--remote", found.tier, "--segments", "-o", "json"), 0, 4)
    for partition, one in fetched(klog, found, to).items():
        segments = next(each for each in listed["partitions"] if f"{each['topic']}-{each['partition']}" == partition)
        local = {
            path.name: path.read_bytes() for path in (found.leader / partition).iterdir() if path.suffix != ".lock"
        }
        count = 0
        for segment in segments["segment_list"]:
            base = f"{segment['start_offset']:020}"
            if segment["role"] != "serves" or f"{base}.log" in local:
                continue
            (folder,) = found.tier.glob(f"kafka-tiered-storage/{partition}-*")
            for kind in segment["objects"]:
                target = to / partition / f"{base}.{kind}"
                if kind == "snapshot":
                    target = to / partition / f"{segment['end_offset'] + 1:020}.snapshot"
                if kind != "leader_epoch_checkpoint":
                    assert target.read_bytes() == (folder / f"{base}-{segment['segment_id']}.{kind}").read_bytes(), (
                        target
                    )
            count += 1
        assert one["rebuilt"] == []
        assert count == one["remote_segments"]
        for file, content in local.items():
            if file.endswith((".log", ".index", ".timeindex", ".txnindex")):
                assert (to / partition / file).read_bytes() == content


LOST = {
    "d-log-missing-0": [[36, 47]],
    "d-log-cut-0": [[24, 35]],
    "d-log-cut-clean-0": [[12, 23]],
    "d-log-empty-0": [[24, 35]],
    "d-all-missing-0": [[36, 47]],
    "d-first-missing-0": [[0, 11]],
    "d-swapped-0": [[36, 59]],
    "d-log-flip-0": [[12, 23]],
}
REBUILT = {
    "d-index-missing-0": {"index", "timeindex"},
    "d-index-odd-0": {"index", "timeindex"},
    "d-index-lies-0": {"index", "timeindex"},
    "d-timeindex-missing-0": {"index", "timeindex"},
    "d-txnindex-missing-0": {"txnindex"},
    "d-snapshot-missing-0": {"snapshot"},
    "d-snapshot-flip-0": {"snapshot"},
}


@pytest.mark.corpora
def test_damage_costs_the_segment_alone(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """Files beside a log that are missing or wrong are rebuilt."""
    found, to = situation(image, "damaged"), tmp_path / "back"
    shown = fetched(klog, found, to, codes=(4,))
    assert {name: one["holes"] for name, one in shown.items() if one["holes"]} == LOST
    assert {name for name, one in shown.items() if one["damaged"]} == set(LOST)
    for name, one in shown.items():
        kinds = {file.rpartition(".")[2] for file in one["rebuilt"]}
        assert kinds == REBUILT.get(name, set()), name
        answers = found.clients[name]
        gone = {offset for first, last in one["holes"] for offset in range(first, last + 1)}
        rows = [row[:4] for row in answers["uncommitted"] if row[0] not in gone]
        assert served(klog, to / name, "read_uncommitted") == rows
        committed = [row[0] for row in served(klog, to / name, "read_committed")]
        assert committed == [offset for offset in answers["committed"] if offset not in gone]
        if not gone:
            assert document(klog("verify", to / name, "--deep", "-o", "json"), 0)
    strict = klog("remote", "fetch", *found.data, "--remote", found.tier, "--to", tmp_path / "strict", "--strict")
    assert strict.exit_code == 8
    assert not (tmp_path / "strict").exists()


# what interrupts it


def fetch(place: tuple[Path, Path], to: Path, disk: Disk | None = None, **more: Any) -> Any:
    query = RemoteQuery((str(place[0]),), open_tier(str(place[1])), ("fine", "short"))
    return fetch_remote(query, FetchOptions(str(to), now_ms=1_750_000_000_000, **more), Silence(), disk)


def calls(place: tuple[Path, Path], tmp_path: Path) -> int:
    disk = SteppedDisk(tmp_path)
    fetch(place, tmp_path / "whole", disk)
    return len(disk.calls)


@some_or_all
def test_killed_at_every_call_it_goes_on_to_the_same_tree(place: tuple[Path, Path], tmp_path: Path, every: int) -> None:
    count, to = calls(place, tmp_path), tmp_path / "back"
    whole = contents(tmp_path / "whole")
    assert count > 50
    for at in range(0, count, min(every, 5)):
        shutil.rmtree(to, ignore_errors=True)
        with pytest.raises(KilledError):
            fetch(place, to, DeadlyDisk(tmp_path, at))
        end(place, to, whole)
        assert contents(to) == whole, at


def end(place: tuple[Path, Path], to: Path, whole: dict[str, bytes]) -> None:
    """Run it again, unless the interruption was behind its end."""
    if not to.exists() or contents(to) != whole:
        fetch(place, to)


@some_or_all
@pytest.mark.parametrize("model", MODELS)
def test_after_a_power_cut_at_every_call_it_goes_on_to_the_same_tree(
    place: tuple[Path, Path], tmp_path: Path, every: int, model: str
) -> None:
    """Whatever is not synced is lost, or torn."""
    count, work = calls(place, tmp_path), tmp_path / "work"
    whole = contents(tmp_path / "whole")
    for at in range(0, count, every):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        disk = PowerCutDisk(work, at)
        with pytest.raises(PowerCutError):
            fetch(place, work / "back", disk)
        disk.lose_power(model, Random(at))
        end(place, work / "back", whole)
        assert contents(work / "back") == whole, at


def refusal(place: tuple[Path, Path], to: Path, disk: Disk) -> str | None:
    """Fetch; return the message of the system's refusal."""
    try:
        fetch(place, to, disk)
    except OSError as error:
        return str(error)
    return None


@some_or_all
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_refused_call_is_8_and_the_next_run_ends_it(
    place: tuple[Path, Path], tmp_path: Path, every: int, number: int
) -> None:
    count, to = calls(place, tmp_path), tmp_path / "back"
    whole = contents(tmp_path / "whole")
    for at in range(0, count, min(every, 7)):
        shutil.rmtree(to, ignore_errors=True)
        said = refusal(place, to, FaultyDisk(tmp_path, at, number))
        if said is None:  # the lock that could not be removed stays, as a broker's does
            assert at >= count - 3
        else:
            assert os.strerror(number) in said, at
            end(place, to, whole)
        assert contents(to) == whole, at


def test_a_segment_that_is_there_is_not_read_again(place: tuple[Path, Path], tmp_path: Path) -> None:
    """The objects of segments that an interrupted run has fetched may be gone."""
    to, more = tmp_path / "back", calls(place, tmp_path) - 12
    with pytest.raises(KilledError):
        fetch(place, to, DeadlyDisk(tmp_path, more))
    for log in place[1].rglob("*.log"):
        log.write_bytes(bytes(log.stat().st_size))
    fetch(place, to)
    assert contents(to) == contents(tmp_path / "whole")


# places, ranges, segments


def test_a_place_that_is_not_its_own_is_refused(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    data, tier = place
    before = contents(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("x")
    for to in (data, data / "new", tier / "new", tier, tmp_path / "full", tmp_path / "full/mine", data / "fine-0"):
        done = klog("remote", "fetch", data, "--remote", tier, "--to", to)
        assert done.exit_code == 16, (to, done.stderr)
        assert done.stderr.count(b"\n") == 1
    shutil.rmtree(tmp_path / "full")
    assert contents(tmp_path) == before


def test_a_finished_fetch_is_not_fetched_over(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    words = ("remote", "fetch", place[0], "--remote", place[1], "--to", tmp_path / "back", "-t", "fine")
    assert klog(*words).exit_code == 0
    assert klog(*words).exit_code == 16


def test_the_beginning_of_another_fetch_is_left_alone(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        fetch(place, tmp_path / "back", DeadlyDisk(tmp_path, calls(place, tmp_path) - 12))
    before = contents(tmp_path / "back")
    done = klog("remote", "fetch", place[0], "--remote", place[1], "--to", tmp_path / "back", "-t", "fine")
    assert done.exit_code == 16
    assert b"unfinished fetch of something else" in done.stderr
    assert contents(tmp_path / "back") == before


def test_a_fetch_goes_on_from_the_same_tier_by_another_path(
    klog: Klog, place: tuple[Path, Path], tmp_path: Path
) -> None:
    """A slash at its end, a link to it."""
    with pytest.raises(KilledError):
        fetch(place, tmp_path / "back", DeadlyDisk(tmp_path, calls(place, tmp_path) - 12))
    done = klog(
        "remote", "fetch", place[0], "--remote", f"{place[1]}/", "--to", tmp_path / "back", "-t", "fine", "-t", "short"
    )
    assert done.exit_code == 0, done.stderr


def test_ranges_take_complete_segments(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    data, tier = place
    words = ("remote", "fetch", data, "--remote", tier, "-t", "fine", "-o", "json", "--to")
    (every,) = document(klog(*words, tmp_path / "all"))["partitions"]
    bases = sorted(int(path.name[:20]) for path in (tmp_path / "all/fine-0").glob("*.log"))
    rows = served(klog, tmp_path / "all/fine-0", "read_uncommitted")
    for number, (first, end) in enumerate(
        ((bases[1] + 1, None), (None, bases[2] + 1), (bases[1], bases[2]), (-3, None))
    ):
        to = tmp_path / f"part-{number}"
        limits = [
            *(("--from-offset", first) if first is not None else ()),
            *(("--to-offset", end) if end is not None else ()),
        ]
        (one,) = document(klog(*words, to, *map(str, limits)))["partitions"]
        low = max(base for base in bases if base <= (0 if first is None else first % every["log_end_offset"]))
        high = min([base for base in bases if end is not None and base >= end], default=every["log_end_offset"])
        assert (one["first_offset"], one["log_end_offset"]) == (low, high)
        assert served(klog, to / "fine-0", "read_uncommitted") == [row for row in rows if low <= row[0] < high]
        assert klog("verify", to, "--deep").exit_code == 0
    time = rows[bases[1] + 2][1]
    (one,) = document(klog(*words, tmp_path / "timed", "--from-time", str(time), "--to-time", str(time)))["partitions"]
    assert one["first_offset"] == bases[1]
    assert one["segments"] == 1


def test_one_tier_alone(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    data, tier = place
    words = ("remote", "fetch", "--remote", tier, "-t", "fine", "-o", "json", "--to")
    (alone,) = document(klog(*words, tmp_path / "alone"))["partitions"]
    (beside,) = document(klog(*words, tmp_path / "beside", data, "--remote-only"))["partitions"]
    assert alone["local_segments"] == beside["local_segments"] == 0
    ours, theirs = (contents(tmp_path / name / "fine-0") for name in ("alone", "beside"))
    assert ours == theirs
    assert document(klog("describe", tmp_path / "alone", "-o", "json"))["cluster_id"] is None
    for name in ("alone", "beside"):
        assert klog("verify", tmp_path / name, "--deep").exit_code == 0


def test_named_segments_are_fetched_whatever_part_they_play(
    klog: Klog, place: tuple[Path, Path], tmp_path: Path
) -> None:
    """Also those of a deleted topic."""
    data, tier = place
    listed = document(klog("remote", "ls", data, "--remote", tier, "--segments", "-o", "json"), 4)["partitions"]
    orphans = [(one, each) for one in listed for each in one["segment_list"] if each["role"] == "orphan"]
    owner, orphan = orphans[0]
    to = tmp_path / "back"
    done = klog("remote", "fetch", data, "--remote", tier, "--to", to, "--segment", orphan["segment_id"], "-o", "json")
    (one,) = document(done)["partitions"]
    name = f"{owner['topic']}-{owner['partition']}"
    assert one["first_offset"] == orphan["start_offset"]
    (stored,) = tier.rglob(f"*{orphan['segment_id']}.log")
    log = to / orphan["segment_id"] / name / f"{orphan['start_offset']:020}.log"
    assert log.read_bytes() == stored.read_bytes()
    assert klog("verify", to / orphan["segment_id"], "--deep").exit_code == 0
    again = klog("remote", "fetch", data, "--remote", tier, "--to", tmp_path / "a", "--segment", orphan["segment_id"])
    command = again.stdout.decode().splitlines()[-1].split()
    assert command == ["klog", "verify", str(tmp_path / "a" / orphan["segment_id"]), "--deep"]
    assert klog(*command[1:]).exit_code == 0
    unknown = klog("remote", "fetch", data, "--remote", tier, "--to", tmp_path / "no", "--segment", "A" * 22)
    assert unknown.exit_code == 16
    assert not (tmp_path / "no").exists()


def test_nothing_is_written_to_what_is_read(klog: Klog, place: tuple[Path, Path], tmp_path: Path) -> None:
    def look() -> Iterator[tuple[str, int, int]]:
        for path in sorted((tmp_path / "tiered").rglob("*")):
            status = path.stat()
            yield str(path), status.st_size, status.st_mtime_ns

    before = list(look())
    assert klog("remote", "fetch", place[0], "--remote", place[1], "--to", tmp_path / "back").exit_code == 0
    assert list(look()) == before
