"""Rebuild fixtures/ from the corpora: a choice of real broker data, and the output of Kafka's own dump tool for it.

    python tools/make_fixtures.py [CORPORA]        default: ../shared/corpora beside the project

Needs Java 17 and Maven for the golden files.  Everything under fixtures/ but its README and .gitattributes is replaced.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.brokers.kafka import DumpTool  # noqa: E402
from tests.support import goldens  # noqa: E402

FIXTURES = ROOT / "fixtures"
# target → (folder or archive in the corpora, partitions kept)
CHOICE = {
    "modern": (
        "modern/data",
        "__cluster_metadata-0 __consumer_offsets-0 __consumer_offsets-1 __consumer_offsets-2 __consumer_offsets-3"
        " __share_group_state-0 __share_group_state-1 __transaction_state-0 __transaction_state-1"
        " plain-1 plain-2 gzip-0 snappy-1 lz4-broker-0 zstd-0 logappend-0 dense-0 idempotent-0 trimmed-0 trimmed-1"
        " tx-0 tx-open-0 empty-0",
    ),
    "legacy": (
        "legacy/data",
        "v0-none-0 v0-gzip-0 v0-snappy-0 v0-lz4-0 v1-none-0 v1-gzip-0 v1-snappy-0 v1-lz4-0 v1-append-time-0"
        " v1-lz4-broker-0 changing-0 changing-compressed-0",
    ),
    "v39/data": ("v39/data", "spread-0 codecs-2 codecs-3 __transaction_state-0"),
    "v39/data1": ("v39/data1", "spread-2 codecs-0 codecs-1 __transaction_state-1 __consumer_offsets-2"),
    "crash/torn-in-batch": ("crash/v4.3.1-torn-in-batch/before.tar.gz", "torn-0 calm-0"),
    "crash/flip-middle": ("crash/v4.3.1-flip-middle/before.tar.gz", "torn-0"),
    "compaction/before": (
        "compaction/v4.3.1/before.tar.gz",
        "keys-none-0 keys-lz4-0 tombstones-now-0 shapes-0 grouping-0 tx-later-0 idempotent-0",
    ),
    "compaction/after": (
        "compaction/v4.3.1/after.tar.gz",
        "keys-none-0 keys-lz4-0 tombstones-now-0 shapes-0 grouping-0 tx-later-0 idempotent-0",
    ),
}
SIMULATIONS = "replicas/simulate"
# archive of nodes' disks → partitions kept on the brokers; of a controller the metadata log
DISKS = {
    "replicas/split": "orders-0 keyed-0 pairs-0",
    "replicas/behind": "orders-0",
    "replicas/quorum": "",
    "replicas/keys": "__cluster_metadata-0 byhand-0 byhand-1 byhand-2 byhand-3 byhand-4 byhand-5 byhand-6"
    " grown-0 grown-1 grown-2 grown-3 grown-4 grown-5 two-0 two-1 two-2 two-3 two-4 two-5 two-6 two-7",
}
# archive whose truth is copied too → the parts of it that are kept
TRUTHS = {"replicas/quorum": "version names moments admin ends directory_ids"}
OFFSET_CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def copy(source: Path, target: Path, partitions: set[str]) -> None:
    """Copy a log dir's own files and the chosen *partitions*."""
    absent = partitions - set(os.listdir(source))
    assert not absent, f"{source}: no {absent}"
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_file() and (len(inside.parts) == 1 or inside.parts[0] in partitions):
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inside)
    for name in OFFSET_CHECKPOINTS:
        if (target / name).exists():
            keep_only(target / name, partitions)


def keep_only(checkpoint: Path, partitions: set[str]) -> None:
    """Drop the lines of partitions that were left behind: else a healthy log dir would look like one that lost some."""
    if checkpoint.stat().st_size == 0:
        return
    version, _, *lines = checkpoint.read_text().splitlines()
    kept = [line for line in lines if "-".join(line.split(" ")[:2]) in partitions]
    checkpoint.write_text("\n".join([version, str(len(kept)), *kept]) + "\n")


def main(corpora: Path) -> None:
    for old in FIXTURES.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    for name, (source, partitions) in CHOICE.items():
        with tempfile.TemporaryDirectory() as place:
            folder = corpora / source
            if source.endswith(".tar.gz"):
                with tarfile.open(folder) as tar:
                    tar.extractall(place, filter="data")
                folder = Path(place)
            copy(folder, FIXTURES / name, set(partitions.split()))
    make_goldens()
    shutil.copytree(corpora / SIMULATIONS, FIXTURES / SIMULATIONS)
    for name, kept in DISKS.items():
        copy_disks(corpora / f"{name}.tar.xz", FIXTURES / name, set(kept.split()))
    for name, kept in TRUTHS.items():
        copy_truth(corpora / f"{name}.truth.json.gz", FIXTURES / name / "truth.json", kept.split())


def copy_truth(source: Path, target: Path, parts: list[str]) -> None:
    """Copy the truth of clients, one part a line."""
    truth = json.loads(gzip.decompress(source.read_bytes()))
    lines = [f"{json.dumps(part)}: {json.dumps(truth[part], separators=(',', ':'))}" for part in parts]
    target.write_text("{" + ",\n".join(lines) + "}\n")


def copy_disks(archive: Path, target: Path, partitions: set[str]) -> None:
    """Copy the disks of several nodes; of a preallocated index the written part."""
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
        for node in sorted(Path(place).iterdir()):
            here = {name for name in partitions if (node / name).exists()}
            copy(node, target / node.name, here or {"__cluster_metadata-0"})
    for index in target.rglob("*index"):
        size = {".index": 8, ".timeindex": 12}.get(index.suffix)
        if size is not None:
            content = index.read_bytes().rstrip(b"\0")
            index.write_bytes(content + bytes(-len(content) % size))


def make_goldens() -> None:
    """Ask Kafka about a copy: its tool creates an index that is missing and trims one longer than its entries."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve() / "copy"
        shutil.copytree(FIXTURES, root)
        files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        files = [file for file in files if "/" in file]
        with DumpTool(cwd=root) as tool:
            answers = goldens.ask(tool, root, files)
        # A file that Kafka's tool changed would have got its later answers about something that is not in the fixtures.
        changed = [file for file in files if (root / file).read_bytes() != (FIXTURES / file).read_bytes()]
        assert not changed, changed
    (FIXTURES / "golden").mkdir()
    goldens.write(FIXTURES / "golden", answers)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "corpora")
