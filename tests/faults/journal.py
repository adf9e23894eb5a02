"""The journal of lossy.c: the calls of programs on a mount, and the content of a disk after any of them.

journal = Journal(backing)
with mounted(place, backing, calls):
    ...
journal.load(calls)
for at in range(journal.calls):
    journal.cut(at, MODELS[0], Random(at)).write(folder)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.faults.lossy_disk import LossyDisk, Shown


@dataclass
class _Line:
    words: list[str]
    data: bytes = b""


class Journal:
    """The calls of a run, replayed up to any of them; going on is cheap, going back begins anew."""

    def __init__(self, backing: Path) -> None:
        self._before = LossyDisk(backing)
        self._calls: list[list[_Line]] = []

    def load(self, file: Path) -> None:
        """Read the calls that were made since."""
        self._calls = _read_calls(file.read_bytes())
        self._begin()

    @property
    def calls(self) -> int:
        return len(self._calls)

    def call(self, at: int) -> str:
        """Return call number *at* in words."""
        return " ".join(self._calls[at][0].words)

    def _begin(self) -> None:
        self._at, self._disk = 0, self._before.copy()

    def cut(self, at: int, model: str, random: Random) -> Shown:
        """Return the content of a disk whose power failed before call number *at*."""
        if at < self._at:
            self._begin()
        for call in self._calls[self._at : at]:
            for line in call:
                _play(line, self._disk)
        self._at = at
        return self._disk.lose_power(model, random)


def _play(line: _Line, disk: LossyDisk) -> None:
    match line.words:
        case ["create" | "mkdir" as call, parent, name, number]:
            disk.add(int(number), call == "mkdir")
            disk.name(int(parent), name, int(number))
        case ["link", parent, name, number]:
            disk.name(int(parent), name, int(number))
        case ["unlink" | "rmdir", parent, name]:
            disk.name(int(parent), name, None)
        case ["rename", parent, name, new_parent, new_name]:
            disk.rename(int(parent), name, int(new_parent), new_name)
        case ["write", number, start, _]:
            disk.write(int(number), int(start), line.data)
        case ["attributes", number, size]:
            disk.write(int(number), int(size), None)
        case ["fsync", number]:
            disk.sync(int(number))
        case ["meta", number, mode, owner, group, modified_ns]:
            disk.set_meta(int(number), (int(mode, 8), int(owner), int(group), int(modified_ns)))
        case ["attributes", _]:
            pass
        case other:
            raise AssertionError(other)


def _read_calls(journal: bytes) -> list[list[_Line]]:
    """Return the calls, each with the resulting metadata."""
    found: list[list[_Line]] = []
    at = 0
    while at < len(journal):
        end = journal.index(b"\n", at)
        line = _Line(journal[at:end].decode().split("\t"))
        at = end + 1
        if line.words[0] == "write":
            line.data = journal[at : at + int(line.words[3])]
            at += len(line.data)
        if line.words[0] == "meta":
            found[-1].append(line)
        else:
            found.append([line])
    return found
