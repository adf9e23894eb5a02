"""A disk after a power cut: files and directories as programs saw them, and as they were synced.

POSIX promises what an fsync has brought to the disk, and nothing else: a file's content and metadata by one of the
file, a name by one of its directory.  The models keep as little of the rest, or as strange a mixture, as file systems
may.  As in all of them, a rename is never half of one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import NamedTuple

MODELS = ("unsynced is lost", "names are lost", "content is lost", "writes are torn")
"""All unsynced data is lost; only the first changes in each directory are there, but all content; all names are there,
but unsynced content is old, or zeros; names are there in their order up to a moment since the last sync, and some
blocks of the writes to unsynced files."""

Meta = tuple[int, int, int, int]
"""Mode, owner, group, time (ns)."""
Names = dict[str, int]
_NOTHING: Meta = (0, 0, 0, 0)


class _Listing(NamedTuple):
    """A state of a directory: its names, to the numbers of their inodes, and its metadata."""

    names: Names
    meta: Meta


@dataclass
class _Inode:
    """A file or a directory: as programs see it, and as it was when it was synced, with all changes since."""

    is_directory: bool
    meta: Meta = _NOTHING
    synced_meta: Meta = _NOTHING
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    names: Names = field(default_factory=dict)
    since: list[_Listing] = field(default_factory=list)
    """For a directory: its state when it was synced, and after each later change of names; not its present one."""
    version: int = 0
    """How often its names have changed."""

    @property
    def synced_version(self) -> int:
        return self.version - len(self.since)

    def listing(self, version: int) -> _Listing:
        return [*self.since, _Listing(self.names, self.meta)][version - self.synced_version]

    def copy(self) -> _Inode:
        """Return a copy of one that is wholly synced."""
        return _Inode(self.is_directory, self.meta, self.meta, self.content.copy(), self.synced, names=self.names)


class _Move(NamedTuple):
    """A rename to another directory: the change in either that makes it."""

    source: int
    source_version: int
    target: int
    target_version: int


@dataclass
class Shown:
    """The content after a cut; equal ones have equal `digest`."""

    root: int
    names: dict[int, Names]
    contents: dict[int, bytes]
    metas: dict[int, Meta]

    def digest(self) -> bytes:
        """Return the contents, names and metadata for a comparison, without the times of directories."""
        digest = blake2b(digest_size=16)
        numbers: dict[int, int] = {}
        for path, number in self._walk(self.root, ""):
            is_file = number in self.contents
            meta = self.metas[number] if is_file else self.metas[number][:3]
            digest.update(repr((path, numbers.setdefault(number, len(numbers)), meta)).encode())
            digest.update(self.contents.get(number, b""))
        return digest.digest()

    def _walk(self, number: int, path: str) -> Iterator[tuple[str, int]]:
        yield path, number
        for name in sorted(self.names.get(number, ())):
            yield from self._walk(self.names[number][name], f"{path}/{name}")

    def write(self, folder: Path) -> None:
        """Make all of it in an empty directory."""
        written: dict[int, str] = {}
        found = list(self._walk(self.root, str(folder)))
        for path, number in found:
            if number in written:
                os.link(written[number], path)
                continue
            if number in self.contents:
                written[number] = path
                Path(path).write_bytes(self.contents[number])
            elif number != self.root:
                os.mkdir(path)
        for path, number in reversed(found):
            mode, owner, group, modified_ns = self.metas[number]
            os.chown(path, owner, group)
            os.chmod(path, mode)
            os.utime(path, ns=(modified_ns, modified_ns))


class LossyDisk:
    """Everything below a directory, on the disk; then the effects of calls on it.  Inodes go by numbers."""

    def __init__(self, folder: Path) -> None:
        self.root = folder.lstat().st_ino
        self._inodes = _read(folder)
        self._order: list[list[tuple[int, _Listing]]] = []
        """For each change of names since the last sync of anything: the directories, and how they were before."""
        self._moves: list[_Move] = []

    def copy(self) -> LossyDisk:
        """Return a copy of an untouched one."""
        copy = object.__new__(LossyDisk)
        copy.root, copy._order, copy._moves = self.root, [], []
        copy._inodes = {number: inode.copy() for number, inode in self._inodes.items()}
        return copy

    # the calls

    def add(self, number: int, is_directory: bool) -> None:
        """Make a file or directory that has no name yet."""
        self._inodes[number] = _Inode(is_directory)

    def name(self, directory: int, name: str, number: int | None) -> None:
        """Point a name in a directory to another inode, or to none."""
        self._order.append([])
        self._change_names(directory, {name: number})

    def rename(self, source: int, name: str, target: int, new_name: str) -> None:
        number = self._inodes[source].names[name]
        self._order.append([])
        if source == target:
            self._change_names(source, {name: None, new_name: number})
            return
        self._moves.append(_Move(source, self._inodes[source].version, target, self._inodes[target].version))
        self._change_names(source, {name: None})
        self._change_names(target, {new_name: number})

    def _change_names(self, directory: int, names: dict[str, int | None]) -> None:
        inode = self._inodes[directory]
        inode.since.append(_Listing(inode.names, inode.meta))
        self._order[-1].append((directory, inode.since[-1]))
        inode.version += 1
        together = {**inode.names, **names}
        inode.names = {name: number for name, number in together.items() if number is not None}

    def write(self, number: int, at: int, data: bytes | None) -> None:
        """Write *data* at a position of a file, or with None cut it there."""
        inode = self._inodes[number]
        inode.changes.append((at, data))
        _apply(inode.content, at, data)

    def set_meta(self, number: int, meta: Meta) -> None:
        inode = self._inodes[number]
        if inode.meta == _NOTHING:
            inode.synced_meta = meta  # there is no name without
        inode.meta = meta

    def sync(self, number: int) -> None:
        inode = self._inodes[number]
        inode.synced_meta = inode.meta
        inode.since = []
        if inode.changes:
            inode.synced, inode.changes = bytes(inode.content), []
        self._order = []  # what keeps names in order brings all of them to the disk

    # after a cut

    def lose_power(self, model: str, random: Random) -> Shown:
        """Return the content of the disk, by a model; this disk is unchanged."""
        shown = Shown(
            self.root,
            {number: inode.names for number, inode in self._inodes.items() if inode.is_directory},
            {number: bytes(inode.content) for number, inode in self._inodes.items() if not inode.is_directory},
            {number: inode.meta for number, inode in self._inodes.items()},
        )
        lose = (self._lose_unsynced, self._lose_names, self._lose_content, self._tear)[MODELS.index(model)]
        lose(shown, random)
        return shown

    def _lose_unsynced(self, shown: Shown, _: Random) -> None:
        self._set_names(shown, self._least_versions())
        for number, inode in self._inodes.items():
            if not inode.is_directory:
                shown.contents[number] = inode.synced
            if not inode.is_directory or not inode.since:
                shown.metas[number] = inode.synced_meta

    def _lose_names(self, shown: Shown, random: Random) -> None:
        versions = self._least_versions()
        if random.random() < 0.5:
            for number, version in versions.items():
                versions[number] = random.randint(version, self._inodes[number].version)
            # A file that did not reach one directory has not left the other.
            while half := [one for one in self._moves if self._is_half(one, versions)]:
                for move in half:
                    versions[move.source] = move.source_version
        self._set_names(shown, versions)

    def _least_versions(self) -> dict[int, int]:
        """Return the state of each directory that was synced, or that a rename shows which was synced elsewhere."""
        versions = {number: inode.synced_version for number, inode in self._inodes.items() if inode.is_directory}
        while half := [one for one in self._moves if self._is_half(one, versions)]:
            for move in half:
                versions[move.target] = move.target_version + 1
        return versions

    def _is_half(self, move: _Move, versions: dict[int, int]) -> bool:
        return versions[move.source] > move.source_version and versions[move.target] <= move.target_version

    def _set_names(self, shown: Shown, versions: dict[int, int]) -> None:
        for number, version in versions.items():
            shown.names[number], shown.metas[number] = self._inodes[number].listing(version)

    def _lose_content(self, shown: Shown, random: Random) -> None:
        for number, inode in self._inodes.items():
            if inode.changes:
                shown.contents[number], shown.metas[number] = _in_pieces(inode, random, 0)

    def _tear(self, shown: Shown, random: Random) -> None:
        for number, inode in self._inodes.items():
            if inode.is_directory and not inode.since:
                shown.metas[number] = random.choice([inode.meta, inode.synced_meta])
        for changed in reversed(self._order[random.randint(0, len(self._order)) :]):
            for number, listing in changed:
                shown.names[number], shown.metas[number] = listing
        for number, inode in self._inodes.items():
            if not inode.is_directory:
                shown.contents[number], shown.metas[number] = _in_pieces(inode, random, 0.5)


def _in_pieces(inode: _Inode, random: Random, share: float) -> tuple[bytes, Meta]:
    """Return the existing part of an unsynced file: a *share* of the blocks of each write; and its metadata.

    The size is written together with the metadata.  The cut part still exists if these are old, and data written behind
    a cut does not: it is in other blocks.
    """
    is_new, block = random.random() < 0.5, random.choice([512, 4096])
    content = bytearray(inode.synced)
    for at, data in inode.changes:
        if data is None:
            if not is_new:
                break
            _apply(content, at, None)
            continue
        for start in range(at // block * block, at + len(data), block):
            if random.random() < share:
                _apply(content, max(start, at), data[max(start - at, 0) : start + block - at])
    _apply(content, len(inode.content) if is_new else len(inode.synced), None)
    return bytes(content), inode.meta if is_new else inode.synced_meta


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    """Write *data* at a position, or cut there."""
    if data is None:
        del content[at:]
        content.extend(bytes(at - len(content)))
    else:
        content.extend(bytes(max(at + len(data) - len(content), 0)))
        content[at : at + len(data)] = data


def _read(folder: Path) -> dict[int, _Inode]:
    found: dict[int, _Inode] = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        meta = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns
        if path.is_dir():
            names = {inside.name: inside.lstat().st_ino for inside in path.iterdir()}
            found[status.st_ino] = _Inode(True, meta, meta, names=names)
        elif status.st_ino not in found:
            content = path.read_bytes()
            found[status.st_ino] = _Inode(False, meta, meta, bytearray(content), content)
    return found
