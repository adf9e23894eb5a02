"""The result of salvage is the same, whether a survey has followed the batches or salvage reads the logs itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from klog.base.progress import Silence
from klog.change.partition_plan.desired_files import DesiredFiles
from klog.commands.recover import salvage
from klog.commands.recover.segment_ranges import PartitionRanges, salvage_ranges
from klog.data_dir.log_dir import LogDir
from klog.log import reader
from klog.log.segment import Batch, Segment
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions, SalvageOptions
from klog.partition.verify.verify import log_dir_facts

from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch

PARTITIONS = ("tx-0", "tx-open-0", "idempotent-0", "plain-1", "dense-0", "zstd-0", "grouping-0")
SETTINGS = RecoverOptions(RecoverMode.SALVAGE, 1_750_000_100_000)
DAMAGES = 40
WINDOW_BYTES = 1000
"""Small enough for batches in several windows, each of which is overwritten by the next."""


def batches_of(path: Path) -> list[Batch]:
    """Return the intact batches of a log."""
    return [one for one in Segment(str(path)).batches() if isinstance(one, Batch)]


def damage(folder: Path, random: Random) -> None:
    """Damage the logs of a partition: their bytes, their offsets and epochs, the order of their batches."""
    logs = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        path = random.choice(logs)
        content, batches = bytearray(path.read_bytes()), batches_of(path)
        if not content or not batches:
            continue
        at, one = random.randrange(len(content)), random.choice(batches)
        kind = random.choice(("flip", "bit", "zeros", "cut", "again", "swap", "offset", "epoch", "gone", "foreign"))
        if kind == "flip":
            content[at] ^= 0xFF
        elif kind == "bit":
            content[at] ^= 1 << random.randrange(8)
        elif kind == "zeros":
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        elif kind == "cut":
            del content[at:]
        elif kind == "again":
            content[one.position : one.position] = one.content()
        elif kind == "swap":
            del content[one.position : one.position + one.size]
            content += one.content()
        elif kind == "offset":  # no checksum covers it
            content[one.position + random.randrange(8)] ^= 1 << random.randrange(7)
        elif kind == "epoch":
            content[one.position + 12 + random.randrange(4)] ^= 1 << random.randrange(7)
        elif kind == "gone":
            content.clear()
        else:
            other = random.choice(batches_of(random.choice(logs)) or batches)
            content[one.position : one.position] = other.content()
        path.write_bytes(content)


def described(found: PartitionRanges) -> list[object]:
    """Return the content of the ranges, in a form that compares."""
    return [
        (
            segment._replace(kept=list(segment.kept.pairs()), parts=None, unreadable=str(segment.unreadable)),
            list(segment.kept.firsts),
            list(segment.kept.lasts),
            [(part.base, list(part.kept.pairs())) for part in segment.parts],
        )
        for segment in found.segments
    ]


def target(survey: PartitionSurvey, settings: RecoverOptions) -> DesiredFiles:
    """Return the desired files of salvage."""
    found = salvage_ranges(survey.partition, SalvageOptions(settings.repair_bits), ordered=survey.ordered)
    return salvage._Salvage(survey, settings, found).target()


@pytest.mark.parametrize("repair_bits", [False, True], ids=["", "repair-bits"])
@pytest.mark.parametrize("directory", PARTITIONS)
def test_what_a_survey_follows_is_what_salvage_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, repair_bits: bool
) -> None:
    """Kept ranges, patches, cuts and their reasons, copies of dropped batches, the segments that a log becomes."""
    monkeypatch.setattr(reader, "FIRST_WINDOW_BYTES", WINDOW_BYTES)
    monkeypatch.setattr(reader, "WINDOW_BYTES", WINDOW_BYTES)
    source = FIXTURES / "modern"
    if not (source / directory).is_dir():
        source = FIXTURES / "compaction" / "before"
    request, ordered = SalvageOptions(repair_bits), 0
    for number in range(DAMAGES):
        random = Random(f"{directory} {number}")
        data = tmp_path / f"{number}"
        shutil.copytree(source / directory, data / directory)
        (data / "meta.properties").touch()
        damage(data / directory, random)
        log_dir = LogDir(str(data))
        partition = log_dir.partition(directory)
        settings = SETTINGS._replace(repair_bits=repair_bits)
        survey = PartitionSurvey.read(partition, log_dir_facts(log_dir), settings, Silence())
        read = salvage_ranges(partition, request)
        known = salvage_ranges(partition, request, ordered=survey.ordered)
        assert described(known) == described(read), number
        ordered += len(survey.ordered.logs)
        wanted = target(survey, settings)
        survey.ordered.logs.clear()
        assert wanted == target(survey, settings), number
        shutil.rmtree(data)
    assert ordered


def test_what_later_segments_turn_out_to_leave_is_taken_into_account(tmp_path: Path) -> None:
    """A survey reaches the later segments last: it assumes that these keep their offsets, which damage may refute."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    parts = [batch([Record(at, 1_750_000_000_000, None, b"x" * 100)]) for at in (0, 1, 2, 10, 11)]
    torn = bytearray(parts[1])
    torn[-1] ^= 0xFF
    (folder / f"{0:020}.log").write_bytes(b"".join([parts[0], torn, parts[2], parts[3], parts[4]]))
    (folder / f"{10:020}.log").write_bytes(b"\xff" * 500)
    (folder.parent / "meta.properties").touch()
    partition = LogDir(str(folder.parent)).partition("orders-0")
    survey = PartitionSurvey.read(partition, log_dir_facts(LogDir(str(folder.parent))), SETTINGS, Silence())
    found = salvage_ranges(partition, SalvageOptions(), ordered=survey.ordered)
    assert described(found) == described(salvage_ranges(partition, SalvageOptions()))
    assert found.segments[0].last_offset == 11
