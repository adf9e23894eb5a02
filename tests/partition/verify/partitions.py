"""A log dir of real data that tests may damage, and its findings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from klog.data_dir.log_dir import LogDir
from klog.partition.verify.findings import Finding, Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.state_checks import root
from klog.partition.verify.verify import log_dir_facts, verify_partition

from tests.conftest import FIXTURES


class Damageable:
    """A copy of some partitions of fixtures/modern, with the files of their log dir, stopped cleanly or not."""

    def __init__(self, folder: Path, *partitions: str, clean: bool = True) -> None:
        self.path = folder
        source = FIXTURES / "modern"
        for name in partitions:
            shutil.copytree(source / name, folder / name)
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, folder / file.name)
        marker = folder / ".kafka_cleanshutdown"
        if clean:
            marker.write_text('{"version":0,"brokerEpoch":5}')
        else:
            marker.unlink(missing_ok=True)

    def change(self, file: str, change: Callable[[bytearray], bytes | bytearray | None]) -> None:
        """Give a file the bytes that *change* returns; None: remove it."""
        path = self.path / file
        changed = change(bytearray(path.read_bytes()))
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)

    def findings(self, deep: bool = True) -> list[Finding]:
        """Everything that is found in the log dir and its partitions."""
        return findings_in(self.path, deep)

    def problems(self, deep: bool = True) -> list[Finding]:
        """The same without notes."""
        return [finding for finding in self.findings(deep) if finding.severity is not Severity.NOTE]


def findings_in(path: Path, deep: bool = True) -> list[Finding]:
    """Return everything that is found in a log dir and its partitions."""
    log_dir = LogDir(str(path))
    around = log_dir_facts(log_dir)
    found = list(root(log_dir))
    for partition in log_dir.partitions:
        found += verify_partition(partition, around, SurveyOptions(deep)).findings
    return found


def flipped(position: int, bit: int = 0) -> Callable[[bytearray], bytearray]:
    """Return a change that flips one bit; a position below zero counts from the end."""

    def change(data: bytearray) -> bytearray:
        data[position] ^= 1 << bit
        return data

    return change
