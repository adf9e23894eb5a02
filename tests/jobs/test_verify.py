"""The job that checks partitions: its results are those of its input."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError
from klog.data_dir.log_dir import LogDir
from klog.jobs import verify as module
from klog.jobs.verify import VerifyOptions, VerifyTask, collect_results, verify
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import log_dir_facts, verify_partition

from tests.partition.verify.partitions import Damageable, flipped


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Three partitions: damage in one, a leftover with a name that is no text in another."""
    damageable = Damageable(tmp_path, "idempotent-0", "zstd-0", "plain-1")
    damageable.change("idempotent-0/00000000000000000375.log", flipped(100))
    (tmp_path / "zstd-0" / "odd-\udcff.log.cleaned").write_bytes(b"")
    return tmp_path


def parts(log_dir: LogDir) -> list[VerifyTask]:
    return [VerifyTask(i, partition.path, log_dir.path) for i, partition in enumerate(log_dir.partitions)]


@pytest.mark.parametrize("a_unit", [1, 2, 3])
def test_results_are_those_of_verify_however_partitions_are_packed(damaged: Path, a_unit: int) -> None:
    log_dir = LogDir(str(damaged))
    every = parts(log_dir)
    options = pickle.loads(pickle.dumps(VerifyOptions(SurveyOptions(deep=True))))
    units = [pickle.loads(pickle.dumps(every[at : at + a_unit])) for at in range(0, 3, a_unit)]
    results = [result for unit in reversed(units) for result in verify(unit, options)]
    around = log_dir_facts(log_dir)
    alone = [verify_partition(partition, around, SurveyOptions(deep=True)) for partition in log_dir.partitions]
    found = list(collect_results(results, log_dir.partitions))
    assert [(one.partition, one.findings, one.totals) for one in found] == [
        (one.partition, one.findings, one.totals) for one in alone
    ]
    ids = {finding.id: finding.file for one in found for finding in one.findings}
    assert sorted(ids) == ["bad-crc", "foreign-log-name"]
    assert ids["foreign-log-name"] == "zstd-0/odd-\udcff.log.cleaned"


def test_many_findings_come_in_several_results(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is all damage has millions, and no message may be that large."""
    log_dir = LogDir(str(damaged))
    every = parts(log_dir)
    whole = list(collect_results(verify(every, VerifyOptions()), log_dir.partitions))
    monkeypatch.setattr(module, "_SENT_FINDINGS", 1)
    results = list(verify(every, VerifyOptions()))
    assert list(collect_results(results, log_dir.partitions)) == whole
    assert sum(result.kind == "findings" for result in results) == sum(len(one.findings) for one in whole) == 2


def test_a_partition_that_is_alone_looks_around_by_itself(damaged: Path) -> None:
    path = str(damaged / "plain-1")
    partition = LogDir(str(damaged)).partition("plain-1")
    (found,) = collect_results(verify([VerifyTask(0, path, None)], VerifyOptions()), [partition])
    assert found == verify_partition(partition)


def test_what_cannot_be_answered_is_a_finding_of_its_partition(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log dir that a machine cannot see costs its partitions' results, not the job."""
    log_dir = LogDir(str(damaged))
    every = parts(log_dir)
    shutil.rmtree(damaged / "zstd-0")

    def refuse(log_dir: LogDir) -> None:
        raise UnreadableError(f"{log_dir.path}: cannot be listed: Permission denied")

    monkeypatch.setattr(module, "log_dir_facts", refuse)
    found = list(collect_results(verify(every, VerifyOptions()), log_dir.partitions))
    assert [(one.totals.partitions, [finding.id for finding in one.findings]) for one in found] == [
        (1, ["unreadable"])
    ] * 3
    assert found[0].findings[0].message == f"{damaged}: cannot be listed: Permission denied"
