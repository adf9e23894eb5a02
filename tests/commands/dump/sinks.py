"""A dump into memory, through the library alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from klog.commands.dump.dump_files import dump_lines, dump_text
from klog.commands.dump.dump_request import CSV, JSON_LINES, TEXT, DumpRequest, DumpTarget, expand
from klog.commands.dump.newest_rows import newest

Object = dict[str, object]


@dataclass
class Kept:
    """A sink that keeps everything, results and reports, in their order."""

    data: bytearray = field(default_factory=bytearray)
    reports: list[str] = field(default_factory=list)
    events: list[bytes | str] = field(default_factory=list)
    expected: int = 0
    advanced: int = 0

    def write(self, data: bytes | memoryview) -> None:
        self.data += data
        self.events.append(bytes(data))

    def report(self, line: str) -> None:
        assert "\n" not in line
        self.reports.append(line)
        self.events.append(line)

    def expect(self, size: int) -> None:
        self.expected += size

    def advance(self, size: int, path: str = "") -> None:
        self.advanced += size

    @property
    def objects(self) -> list[Object]:
        """The JSON lines."""
        return [json.loads(line) for line in bytes(self.data).split(b"\n")[:-1]]

    @property
    def offsets(self) -> list[object]:
        """The offsets of the records among the JSON lines."""
        return [found["offset"] for found in self.objects if "damage" not in found]


def dump(paths: Iterable[str | os.PathLike[str]], request: DumpRequest) -> tuple[int, Kept]:
    """Dump files and directories; return the exit code and the output."""
    sink = Kept()
    targets = newest(expand([os.fspath(path) for path in paths], (), (), False, request.wanted), request)
    code = dump_text(targets, request, sink) if request.output == TEXT else dump_lines(targets, request, sink)
    return code, sink


def dump_file(path: Path, request: DumpRequest) -> tuple[int, Kept]:
    """Dump one file as it is, whatever is beside it."""
    sink = Kept()
    targets = [DumpTarget(str(path))]
    code = dump_text(targets, request, sink) if request.output == TEXT else dump_lines(targets, request, sink)
    return code, sink


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each later read of any file appends how many bytes it asked for."""
    counted: list[int] = []
    pread, preadv = os.pread, os.preadv

    def count_pread(fd: int, size: int, at: int) -> bytes:
        data = pread(fd, size, at)
        counted.append(len(data))
        return data

    def count_preadv(fd: int, views: list[memoryview], at: int) -> int:
        done = preadv(fd, views, at)
        counted.append(done)
        return done

    monkeypatch.setattr(os, "pread", count_pread)
    monkeypatch.setattr(os, "preadv", count_preadv)
    return counted


__all__ = ["CSV", "JSON_LINES", "TEXT", "DumpRequest", "Kept", "Object", "bytes_read", "dump", "dump_file"]
