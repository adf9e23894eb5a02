"""Whole images: what brokers left clean is clean, and each kind of damage is called by its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.partition.verify.findings import Finding, Severity

from tests.conftest import CORPORA, FIXTURES
from tests.partition.verify.images import CRASHES
from tests.partition.verify.partitions import findings_in

FOLDERS = ("modern/data", "legacy/data", "v39/data", "v39/data1")
COMPACTIONS = sorted(str(path.relative_to(CORPORA)) for path in CORPORA.glob("compaction/*/*.tar.gz"))
REPLICAS = ("in-sync", "behind", "behind-after", "compacted", "defaults", "killed", "split", "three-combined-static")

# The faults of each image, and their places: by the last part of its name.
KILLED: dict[str, tuple[str, ...]] = {
    "kill": (),
    "torn-in-batch": ("torn-tail",),
    "torn-in-header": ("torn-tail",),
    "torn-in-length": ("torn-tail",),
    "zeroed-tail": ("zeroed",),
    "zeroed-segment": ("zeroed",),
    "zeros-appended": ("zero-tail",),
    "garbage-appended": ("garbage-tail",),
    "flip-active": ("bad-crc",),
    "flip-middle": ("bad-crc",),
    "flip-flushed": ("bad-crc",),
    "flip-flushed-index-missing": ("bad-crc", "index-missing"),
    "flip-epoch-and-offset": ("odd-epoch",),
    "recovery-point-zero": (),
    "index-missing": ("index-missing",),
    "index-ragged": ("index-ragged",),
    "index-garbage": ("index-order",),
    "timeindex-missing": ("time-index-missing",),
    "snapshot-missing": (),
    "snapshots-missing": ("snapshots-missing",),
    "snapshot-torn": ("snapshot-corrupt",),
    "epochs-missing": ("epochs-missing",),
    "epochs-malformed": ("epochs-malformed",),
    "txnindex-garbage": ("txn-index-version",),
    "metadata-missing": ("metadata-missing",),
    "log-start-ahead": ("log-start-beyond-end",),
    "foreign-directory": ("foreign-directory",),
    "foreign-log": ("foreign-log-name",),
    "checkpoint-torn": ("checkpoint-malformed",),
    "cleaned-left": ("leftover",),
    "swap-left": ("leftover",),
    "swap-and-cleaned-left": ("leftover",),
    "deleted-left": ("leftover", "high-watermark-below-start"),
    "retention-left": ("leftover", "orphan-index"),
}


def problems(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is not Severity.NOTE]


@pytest.mark.parametrize("name", ["modern", "legacy", "v39/data1"])
def test_what_ships_with_klog_is_clean(name: str) -> None:
    assert not problems(findings_in(FIXTURES / name))


@pytest.mark.corpora
@pytest.mark.parametrize("name", FOLDERS)
def test_a_log_dir_that_was_stopped_is_clean(name: str) -> None:
    assert not problems(findings_in(CORPORA / name))


@pytest.mark.corpora
@pytest.mark.parametrize("name", COMPACTIONS)
def test_what_the_cleaner_leaves_is_clean(name: str, image: Callable[[str], Path]) -> None:
    """Gaps, markers without data, empty batches, indexes of merged segments: all legal."""
    assert not problems(findings_in(image(name)))


@pytest.mark.corpora
@pytest.mark.parametrize("name", REPLICAS)
def test_every_broker_of_a_cluster_is_clean(name: str, image: Callable[[str], Path]) -> None:
    """Followers append many batches at once: their indexes are sparser and have other offsets."""
    for meta in sorted(image(f"replicas/{name}.tar.xz").glob("**/meta.properties")):
        assert not problems(findings_in(meta.parent)), meta


@pytest.mark.corpora
@pytest.mark.parametrize("crash", CRASHES, ids=lambda path: path.name)
def test_damage_is_called_by_its_name(crash: Path, image: Callable[[str], Path]) -> None:
    found = findings_in(image(f"crash/{crash.name}/before.tar.gz"))
    assert tuple(dict.fromkeys(finding.id for finding in found)) == KILLED[crash.name.partition("-")[2]]


@pytest.mark.corpora
def test_every_kind_of_crash_has_an_answer() -> None:
    assert {path.name.partition("-")[2] for path in CRASHES} == set(KILLED)
