"""Two disks from one: a broker that lacks its partitions, and another cluster that has them."""

from __future__ import annotations

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

from klog.formats.checkpoint import write_partition_metadata
from klog.kernel import crc32c

from tests.conftest import FIXTURES, run_klog, writable_copy

FOREIGN_ID = "FoReIgNcLuStErId000000"
OTHER_TOPIC = "oThErToPiCiD0000000000"
NOW = "--now=2026-11-23T12:00:00Z"


def home(folder: Path, *kept: str) -> Path:
    """A broker of 4.3.1, stopped, that has the metadata log and the directories *kept*; all others are deleted."""
    data = writable_copy(FIXTURES / "modern", folder)
    for path in data.iterdir():
        if path.is_dir() and path.name not in (*kept, "__cluster_metadata-0"):
            shutil.rmtree(path)
    return data


def foreign(folder: Path) -> Path:
    """The same partitions in another cluster, which has lost its metadata log: other topic ids, another cluster."""
    data = writable_copy(FIXTURES / "modern", folder)
    shutil.rmtree(data / "__cluster_metadata-0")
    meta = data / "meta.properties"
    meta.write_text(re.sub(r"cluster.id=.*", f"cluster.id={FOREIGN_ID}", meta.read_text()))
    for path in data.glob("*/partition.metadata"):
        path.write_bytes(write_partition_metadata(OTHER_TOPIC))
    return data


def set_epochs(partition: Path, epoch: int, *later: tuple[int, int]) -> None:
    """Set all batches and the checkpoint of a partition to one leader epoch.

    *later*: pairs of an epoch and the base offset of the batch from which it is another, ascending.
    """
    history = [(epoch, 0), *later]
    for log in partition.glob("*.log"):
        content, at = bytearray(log.read_bytes()), 0
        while at + 61 <= len(content):
            base, size = struct.unpack_from(">qi", content, at)
            struct.pack_into(">i", content, at + 12, max(one for one, start in history if start <= base))
            at += size + 12
        log.write_bytes(content)
    entries = "".join(f"{one} {start}\n" for one, start in history)
    (partition / "leader-epoch-checkpoint").write_text(f"0\n{len(history)}\n{entries}")


def epochs(partition: Path) -> set[int]:
    """Return the leader epochs in the batches of a partition; all checksums must hold."""
    found = set()
    for log in sorted(partition.glob("*.log")):
        content, at = log.read_bytes(), 0
        while at < len(content):
            size, epoch, magic, crc = struct.unpack_from(">iibI", content, at + 8)
            assert magic == 2
            assert crc32c(content[at + 21 : at + size + 12]) == crc
            found.add(epoch)
            at += size + 12
    return found


def records(path: Path, *options: str) -> list[dict[str, Any]]:
    """Return the records of a partition as `klog dump` shows them, but for their epochs and places."""
    done = run_klog("dump", path, "--output", "jsonl", *options)
    assert done.exit_code in (0, 4), done.stderr  # 4: there is none
    lines = map(json.loads, done.stdout.splitlines())
    dropped = ("topic", "partition", "leader_epoch", "file", "position")
    return [{name: value for name, value in line.items() if name not in dropped} for line in lines]


def adopted(*words: object) -> dict[str, Any]:
    """Adopt, and return the output; nothing may be refused."""
    done = run_klog("adopt", *words, NOW, "--output", "json")
    assert done.exit_code == 0, (done.stdout[-2000:], done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(*words: object, code: int = 8) -> list[dict[str, Any]]:
    """Try to adopt, and return the refusal."""
    done = run_klog("adopt", *words, NOW, "--output", "json")
    assert done.exit_code == code, (done.stdout[-2000:], done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout)["refused"]
    return found


def doctor(*log_dirs: Path) -> dict[str, Any]:
    """Return the result of a start."""
    found: dict[str, Any] = json.loads(run_klog("doctor", *log_dirs, "--output", "json").stdout)
    return found


def fates(*log_dirs: Path) -> dict[str, str]:
    """Return the fate of each directory."""
    return {one["directory"]: one["fate"] for one in doctor(*log_dirs)["partitions"] if one["directory"]}


def lines(log_dir: Path, name: str) -> dict[str, int]:
    """Return a checkpoint of a log dir: topic and number to offset."""
    path = log_dir / f"{name}-offset-checkpoint"
    found = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {f"{topic}-{number}": int(offset) for topic, number, offset in found}
