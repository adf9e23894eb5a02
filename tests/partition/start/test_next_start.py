"""The prediction of a broker's next start, against real starts of brokers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.partition.start.start_files import StartOutcome
from klog.partition.verify.findings import Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.state_checks import metadata, root
from klog.partition.verify.verify import log_dir_facts, survey_partition

from tests.partition.verify.images import CRASHES, unpacked
from tests.partition.verify.partitions import Damageable, flipped

END = re.compile(r"Completed load of Log\(dir=data/([^,]+),.*logStartOffset=(\d+), logEndOffset=(\d+)\)")
CUT = re.compile(r"partition=([^],]+), dir=data\] Corruption found in segment (\d+), truncating to offset (\d+)")
RECOVERED = re.compile(r"partition=([^],]+), dir=data\] Recovering unflushed segment (\d+)\.")
MISSING = re.compile(r"partition=([^],]+), dir=data\] Could not find offset index file .*/(\d{20})\.log")


@pytest.mark.corpora
@pytest.mark.parametrize("image", CRASHES, ids=lambda path: path.name)
def test_the_next_start_is_what_the_broker_then_did(image: Path, tmp_path: Path) -> None:
    """The segments that it read, its cuts, the kept part."""
    log_dir = LogDir(str(unpacked(image, tmp_path)))
    outcome = (image / "golden/outcome.txt").read_text().strip()
    if outcome.startswith("failed") and "data/torn-0" not in outcome and "saved" not in outcome:
        assert [finding for finding in root(log_dir) if finding.severity is Severity.DAMAGE], outcome
        return
    said = (image / "golden/recovery.log").read_text()
    around = log_dir_facts(log_dir)
    compared = 0
    ends = {name: (int(start), int(end)) for name, start, end in END.findall(said)}
    for partition in log_dir.partitions:
        facts = survey_partition(partition, around, SurveyOptions())
        start = facts.next_start
        assert start is not None
        name = partition.directory
        if outcome.startswith("failed"):
            assert start.fails, outcome
            continue
        assert start.fails is None
        assert bool(list(metadata(facts))) == ("stray" in outcome)
        if name not in ends:
            continue
        compared += 1
        assert (start.log_start, start.log_end) == ends[name]
        missing = {int(base) for name_, base in MISSING.findall(said) if name_ == name}
        recovered = {int(base) for name_, base in RECOVERED.findall(said) if name_ == name}
        assert set(start.recovered) == missing | recovered
        told = [(int(base), int(offset)) for name_, base, offset in CUT.findall(said) if name_ == name]
        assert told == [(cut.base, cut.offset) for cut in start.cuts if cut.base not in missing]
    assert compared or outcome != "started", "nothing was compared"


def start_of(log_dir: Path, directory: str) -> StartOutcome:
    found = LogDir(str(log_dir))
    start = survey_partition(found.partition(directory), log_dir_facts(found), SurveyOptions()).next_start
    assert start is not None
    return start


def test_a_segment_that_lost_its_index_is_cut_once_and_costs_no_other(tmp_path: Path) -> None:
    """It is read while it is loaded, before recovery, which finds no fault in it any more."""
    damageable = Damageable(tmp_path, "idempotent-0", clean=False)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    damageable.change(f"idempotent-0/{375:020}.log", flipped(700))
    start = start_of(tmp_path, "idempotent-0")
    assert [cut.base for cut in start.cuts] == [375]
    assert start.dropped == (750,)
    said = next(one.broker for one in damageable.problems() if one.id == "bad-crc")
    assert re.fullmatch(r"truncates the log here, at offset \d+, and deletes the segment after it", said)
    (tmp_path / f"idempotent-0/{375:020}.index").unlink()
    start = start_of(tmp_path, "idempotent-0")
    assert [cut.base for cut in start.cuts] == [375]
    assert start.dropped == ()
    said = next(one.broker for one in damageable.problems() if one.id == "bad-crc")
    assert re.fullmatch(r"truncates the log here, at offset \d+", said)


@pytest.mark.parametrize(("offset", "dropped"), [(113, ()), (114, (0,))])
def test_a_log_may_end_where_it_starts(tmp_path: Path, offset: int, dropped: tuple[int, ...]) -> None:
    Damageable(tmp_path, "plain-1")
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\nplain 1 {offset}\n")
    assert start_of(tmp_path, "plain-1").dropped == dropped


@pytest.mark.parametrize(("name", "fails"), [("saved.log", True), ("saved.log.deleted", False)])
def test_a_name_without_an_offset_stops_a_broker_unless_the_file_is_to_be_deleted(
    tmp_path: Path, name: str, fails: bool
) -> None:
    Damageable(tmp_path, "plain-1")
    (tmp_path / "plain-1" / name).write_bytes(b"")
    assert (start_of(tmp_path, "plain-1").fails is not None) == fails
