"""How often files are opened, and how many bytes of each are read."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest


class Reads(NamedTuple):
    """The reads since: *opens* and *bytes* by real path."""

    opens: Counter[str]
    bytes: Counter[str]

    def of(self, path: Path) -> tuple[int, int]:
        """Return how often a file was opened and how many bytes of it were read."""
        name = os.path.realpath(path)
        return self.opens[name], self.bytes[name]


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count from now on all that this process opens and reads by os.open, os.pread and os.preadv."""
    counted = Reads(Counter(), Counter())
    names: dict[int, str] = {}
    real_open, pread, preadv = os.open, os.pread, os.preadv

    def open_counted(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = real_open(path, flags, mode, dir_fd=dir_fd)
        names[descriptor] = os.path.realpath(path)
        counted.opens[names[descriptor]] += 1
        return descriptor

    def pread_counted(descriptor: int, size: int, position: int) -> bytes:
        data = pread(descriptor, size, position)
        counted.bytes[names.get(descriptor, "")] += len(data)
        return data

    def preadv_counted(descriptor: int, views: list[memoryview], position: int) -> int:
        count = preadv(descriptor, views, position)
        counted.bytes[names.get(descriptor, "")] += count
        return count

    monkeypatch.setattr(os, "open", open_counted)
    monkeypatch.setattr(os, "pread", pread_counted)
    monkeypatch.setattr(os, "preadv", preadv_counted)
    return counted
