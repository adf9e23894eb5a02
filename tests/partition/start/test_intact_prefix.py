"""A start that is played from a pass's results is the start that reads every byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from klog.base.progress import Silence
from klog.commands.recover import like_broker
from klog.data_dir.log_dir import LogDir
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions
from klog.partition.verify.verify import log_dir_facts

from tests.conftest import FIXTURES

PARTITIONS = ("tx-0", "tx-open-0", "idempotent-0", "grouping-0", "plain-1", "dense-0", "trimmed-0", "zstd-0")
SETTINGS = RecoverOptions(RecoverMode.DEFAULT, 1_750_000_100_000)
DAMAGES = 12


def damage(folder: Path, random: Random) -> None:
    """Damage a partition in one or two places, also its indexes, snapshots and the order of its segments."""
    for _ in range(random.choice((1, 1, 2))):
        files = sorted(path for path in folder.iterdir() if path.name[0] == "0" and path.stat().st_size)
        logs = [path for path in files if path.suffix == ".log"]
        path = random.choice(logs if random.random() < 0.7 else files)
        content = bytearray(path.read_bytes())
        at = random.randrange(len(content))
        kind = random.choice(("flip", "flip", "flip", "zeros", "cut", "again", "gone"))
        if kind == "flip":
            content[at] ^= 1 << random.randrange(8)
        elif kind == "zeros":
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        elif kind == "cut":
            del content[at:]
        elif kind == "again":
            content += content[:at]
        elif path.suffix != ".log":
            path.unlink()
            continue
        path.write_bytes(content)


@pytest.mark.parametrize("directory", PARTITIONS)
@pytest.mark.parametrize("mode", [RecoverMode.DEFAULT, RecoverMode.SALVAGE])
def test_a_start_from_a_pass_is_the_start_that_reads(tmp_path: Path, directory: str, mode: RecoverMode) -> None:
    """The broker's cuts, drops, kept parts and failures are the same wherever the damage is."""
    source = FIXTURES / "modern"
    if not (source / directory).is_dir():
        source = FIXTURES / "compaction" / "before"
    if not (source / directory).is_dir():
        pytest.fail(f"no partition {directory}")
    random = Random(f"{directory} {mode.value}")
    from_pass = 0
    for number in range(DAMAGES):
        data = tmp_path / f"{number}"
        shutil.copytree(source / directory, data / directory)
        (data / "meta.properties").touch()
        if random.random() < 0.3:
            text = f"0\n1\n{directory.rpartition('-')[0]} {directory.rpartition('-')[2]} {random.randrange(500)}\n"
            (data / "recovery-point-offset-checkpoint").write_text(text)
        damage(data / directory, random)
        log_dir = LogDir(str(data))
        partition = log_dir.partition(directory)
        settings = SETTINGS._replace(mode=mode)
        survey = PartitionSurvey.read(partition, log_dir_facts(log_dir), settings, Silence())
        if survey.fails is not None:
            continue
        read = like_broker.play(partition, False, settings)
        played = like_broker.play(partition, False, settings, prefixes=survey.logs.prefixes)
        files = {"files": {}, "epochs": None}
        assert played._replace(**files) == read._replace(**files), number
        assert played.epochs == read.epochs, number
        from_pass += len(survey.logs.prefixes)
        shutil.rmtree(data)
    assert from_pass
