"""The prediction of `klog verify` for a broker's next start, against the start that `klog recover` carries out.

`recover --like-broker` is held against Kafka's own loader, file by file.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.partition.start import log_loader
from klog.partition.start.kept_log import NextStarts
from klog.partition.start.log_loader import next_start
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import ReadSettings
from klog.partition.verify import findings as facts_module
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import log_dir_facts, survey_partition, verify_partition

from tests.commands.recover.like_broker import RECOVERY_POINTS, offsets
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.broker_load import Loader
from tests.partition.verify.partitions import flipped
from tests.support.damage import Case, case, sources

NORMAL = 80
CASES = [pytest.param(n, marks=[pytest.mark.long] if n >= NORMAL else []) for n in range(1000)]
HERE = re.compile(r"truncates the log here, at offset -?\d+(, and deletes the (\d+ segments|segment) after it)?")
BEFORE = re.compile(r"truncates the segment earlier, at offset -?\d+")
KEPT = "does not check this; a consumer"


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


def as_of(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `klog verify` use the time of *case*: producers that were idle for a day are forgotten."""
    monkeypatch.setattr(facts_module.time, "time", lambda: case.now_ms / 1000)


def sizes(partition: Path) -> dict[str, int]:
    return {log.name: log.stat().st_size for log in partition.glob("*.log")}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("number", CASES)
def test_the_start_that_verify_predicts_is_the_one_that_is_played(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it fails, the rest of each log and its end; and each sentence matches the result."""
    one, data = case(11, number, sources()), tmp_path / "data"
    one.make(data)
    as_of(one, monkeypatch)
    found = LogDir(str(data))
    around = log_dir_facts(found)
    partitions = [partition for partition in found.partitions if partition.state.value not in ("stray", "delete")]
    starts = {each.directory: survey_partition(each, around, SurveyOptions()).next_start for each in partitions}
    before = {name: sizes(data / name).keys() for name in starts}
    told = json.loads(run_klog("verify", data, "--output=json").stdout)["findings"]
    ran = run_klog("recover", data, "--like-broker", f"--now={one.now_ms}", "--apply", "--output=json")
    done = json.loads(ran.stdout)
    reasons = {said["directory"]: said["reason"] for said in done["partitions"]}
    lossy = {f"{loss['topic']}-{loss['partition']}" for loss in done.get("losses", ())}
    for name, start in starts.items():
        assert start is not None
        if start.fails is not None:
            assert start.fails in (reasons[name] or ""), one.name
            continue
        assert reasons[name] is None, one.name
        left = {log: sum(end - begin for _, begin, end in pieces) for log, pieces in start.logs.items()}
        assert left == sizes(data / name), one.name
        end = Partition(str(data / name)).log_end
        assert end is not None
        # If damage stays, a broker finds the log's end beyond it, from the last index entry on.
        assert end.damage is not None or end.offset == start.log_end or name in lossy, one.name
    for finding in told:
        name, _, file = finding["file"].partition("/")
        if file.endswith(".log") and name in starts:
            left = sizes(data / name)
            is_split = not left.keys() <= before[name]
            assert is_split or is_so(finding, starts[name].fails is not None, left), (one.name, finding)


def is_so(finding: dict[str, Any], fails: bool, left: dict[str, int]) -> bool:
    """Whether the sentence about a place in a log matches the result; True of sentences about the kind in general."""
    said, position = finding["broker"], finding["position"] or 0
    size = left.get(finding["file"].partition("/")[2])
    if said.startswith("fails: "):
        return fails
    if HERE.fullmatch(said):
        return size == position
    if BEFORE.fullmatch(said):
        return size is not None and size < position
    if said.startswith(KEPT):
        return size is not None and size > position
    return True


@pytest.mark.kafka
@pytest.mark.parametrize("number", [pytest.param(n, marks=[pytest.mark.long] if n >= 30 else []) for n in range(300)])
def test_the_start_that_verify_predicts_is_the_one_of_kafkas_loader(
    number: int, loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition by itself, so that one that fails hides no other."""
    one, data = case(12, number, sources()), tmp_path / "data"
    one.make(data)
    as_of(one, monkeypatch)
    found = LogDir(str(data))
    for partition in found.partitions:
        if partition.state.value in ("stray", "delete") or partition.metadata is None:
            continue
        around = log_dir_facts(found)
        start = survey_partition(partition, around, SurveyOptions()).next_start
        assert start is not None
        kept = NextStarts().kept(partition, around.clean)
        alone = tmp_path / "alone"
        shutil.copytree(data, alone)
        for other in found.partitions:
            if other.directory != partition.directory:
                shutil.rmtree(alone / other.directory)
        outcome = loader.load(alone, now_ms=one.now_ms)
        assert outcome.ok == (start.fails is None) == (kept.fails is None), (one.name, outcome, start.fails)
        if outcome.ok:
            left = {log: sum(end - begin for _, begin, end in pieces) for log, pieces in start.logs.items()}
            assert sizes(alone / partition.directory) == left, one.name
            ends = offsets(alone / RECOVERY_POINTS)  # none of a future replica
            assert ends.get(partition.directory, start.log_end) == start.log_end == kept.log_end, one.name
        shutil.rmtree(alone)


# concrete damages whose start was once predicted otherwise


def unclean(fixture: str, directory: str, folder: Path) -> Path:
    """Return a log dir with one partition of a fixture that was not stopped cleanly, all of which is recovered."""
    folder.mkdir()
    for path in (FIXTURES / fixture).iterdir():
        if path.is_file() and path.name not in (RECOVERY_POINTS, ".kafka_cleanshutdown"):
            shutil.copyfile(path, folder / path.name)
    writable_copy(FIXTURES / fixture / directory, folder / directory)
    return folder


def test_a_flipped_offset_that_leaves_its_index_behind_empties_the_segment_and_drops_all_later_ones(
    tmp_path: Path,
) -> None:
    """No checksum covers a base offset, so nothing looks wrong until an index entry would go backwards."""
    data = writable_copy(FIXTURES / "crash/flip-middle", tmp_path / "data")
    log = data / "torn-0" / f"{232:020}.log"
    log.write_bytes(flipped(6)(bytearray(log.read_bytes())))
    found = LogDir(str(data))
    partition, around = found.partition("torn-0"), log_dir_facts(found)
    start = survey_partition(partition, around, SurveyOptions()).next_start
    assert start is not None
    assert (start.fails, start.log_end, start.dropped) == (None, 232, (296, 364))
    told = {one.position: one.broker for one in verify_partition(partition, around).findings if "232.log" in one.file}
    assert set(told.values()) == {"truncates the log here, at offset 232, and deletes the 2 segments after it"}


def test_what_lies_behind_the_first_damage_is_deleted_with_its_segment(tmp_path: Path) -> None:
    """A broker does not look at the second damage: it has deleted the segment before."""
    data = writable_copy(FIXTURES / "crash/flip-middle", tmp_path / "data")
    log = data / "torn-0" / f"{364:020}.log"
    log.write_bytes(flipped(70)(bytearray(log.read_bytes())))
    found = LogDir(str(data))
    partition, around = found.partition("torn-0"), log_dir_facts(found)
    told = {one.file[-7:]: one.broker for one in verify_partition(partition, around).findings if one.id == "bad-crc"}
    assert told == {
        "296.log": "truncates the log here, at offset 301, and deletes the segment after it",
        "364.log": "deletes this segment, like every segment after the first damage",
    }


@pytest.mark.parametrize(
    ("fixture", "directory", "base"),
    [("compaction/before", "keys-none-0", 0), ("compaction/before", "grouping-0", 348), ("modern", "tx-0", 376)],
)
def test_an_offset_that_its_segment_cannot_hold_may_stop_a_broker(
    fixture: str, directory: str, base: int, tmp_path: Path
) -> None:
    """It would be split, and where only the first offset is wrong a broker refuses that."""
    data = unclean(fixture, directory, tmp_path / "data")
    log = data / directory / f"{base:020}.log"
    log.write_bytes(flipped(4, 7)(bytearray(log.read_bytes())))
    found = LogDir(str(data))
    partition, around = found.partition(directory), log_dir_facts(found)
    start = survey_partition(partition, around, SurveyOptions()).next_start
    assert start is not None
    why = f"{base:020}.log: Split operation is only permitted for segments with overflow"
    assert start.fails == why
    findings = verify_partition(partition, around).findings
    assert f"fails: {why}" in {one.broker for one in findings if one.id == "offset-overflow"}
    assert (
        why in json.loads(run_klog("recover", data, "--like-broker", "--output=json").stdout)["partitions"][0]["reason"]
    )


def test_nothing_is_played_where_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a second pass over the part that a broker would recover."""
    played: list[object] = []
    monkeypatch.setattr(log_loader, "load", lambda *given: played.append(given))
    found = LogDir(str(FIXTURES / "modern"))
    around = log_dir_facts(found)._replace(clean=False)
    for partition in found.partitions:
        verify_partition(partition, around)
    assert not played


def test_what_a_start_needs_of_rebuilt_indexes_is_their_last_entry(tmp_path: Path) -> None:
    """Thousands of segments may be recovered: their indexes would be megabytes each."""
    data = unclean("crash/flip-middle", "torn-0", tmp_path / "data")
    found = LogDir(str(data))
    clock = BrokerClock(0, 86_400_000)
    whole, lean = (
        next_start(found.partition("torn-0"), False, ReadSettings(with_files=files), clock) for files in (True, False)
    )
    assert whole.files
    assert lean == whole._replace(files={})
