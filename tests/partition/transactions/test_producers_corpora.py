"""Producer snapshots and transaction indexes of real brokers, every one against a replay of its log."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import CORPORA, extract
from tests.oracles.producer_compare import Comparison
from tests.support.samples import sampled

pytestmark = pytest.mark.corpora

FOLDERS = ("modern/data", "legacy/data", "v39/data", "v39/data1", "public")
ARCHIVES = sorted(
    str(path.relative_to(CORPORA))
    for pattern in ("compaction/*/*.gz", "crash/*/*.gz", "replicas/*.tar.xz")
    for path in CORPORA.glob(pattern)
    if ".tar." in path.name
)
DAMAGED_BY_HAND = {
    # file → why it differs from a replay, by the archive it is in
    "crash/v3.9.1-txnindex-garbage/before.tar.gz": {"00000000000000000090.txnindex": "34 times 0x7f"},
    "crash/v3.9.1-txnindex-garbage/after.tar.gz": {"00000000000000000090.txnindex": "34 times 0x7f"},
    "crash/v4.3.1-txnindex-garbage/before.tar.gz": {"00000000000000000090.txnindex": "34 times 0x7f"},
    "crash/v4.3.1-txnindex-garbage/after.tar.gz": {"00000000000000000090.txnindex": "34 times 0x7f"},
    "crash/v4.3.1-flip-middle/before.tar.gz": {"00000000000000000364.snapshot": "the flipped batch lies before it"},
    "crash/v4.3.1-log-start-ahead/before.tar.gz": {
        f"{base:020}.txnindex": "the log start is beyond the end of the log" for base in (90, 168, 232)
    },
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_log_dir_is_replayed_to_what_the_broker_wrote(name: str) -> None:
    comparison = Comparison()
    comparison.tree(CORPORA / name)
    assert comparison.unexplained == []
    assert comparison.snapshots


@pytest.mark.parametrize("name", sampled(ARCHIVES, 3))
def test_an_image_is_replayed_to_what_the_broker_wrote(name: str, tmp_path: Path) -> None:
    extract(CORPORA / name, tmp_path)
    comparison = Comparison()
    comparison.tree(tmp_path)
    differing = {os.path.basename(line.split(": ")[0]) for line in comparison.unexplained}
    assert differing == set(DAMAGED_BY_HAND.get(name, ())), comparison.unexplained
    nothing_cleaned = not name.startswith("compaction/") or name.endswith("/before.tar.gz")
    if nothing_cleaned:
        assert set(comparison.explained) <= {"expired", "log start", "corrupt"}
        told = set(comparison.irregular) - {"MARKER_WITHOUT_TXN"}
        assert comparison.damaged or told <= {"SEQUENCE_GAP"}, told


def test_the_corpora_hold_enough_to_compare() -> None:
    """An empty list of archives, or images without snapshots, would prove nothing."""
    assert Counter(name.partition("/")[0] for name in ARCHIVES).keys() == {"compaction", "crash", "replicas"}
    comparison = Comparison()
    comparison.tree(CORPORA / "modern/data")
    assert comparison.equal_snapshots > 100
    assert comparison.equal_indexes == comparison.indexes > 10
    assert comparison.entries > 50
    assert not comparison.irregular
