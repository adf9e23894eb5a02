"""Refuses output paths in a log dir or a partition, or over one of Kafka's files.

    check_output("out.jsonl", ["data/orders-3"])        a file
    check_directory("copy")                             a directory that will be made, or filled
    check_places(plan.log_dirs, backups=plan.backups)   those of a plan

The real end of a path counts, not its text: links are followed, `..` is resolved as the system resolves it, and a
directory is identified by its inode, wherever it is mounted.  Log dirs and partitions are recognised by their content,
because an output may be misdirected into one that the command does not name. `klog.data_dir.disk.disk_changes.NewFile`,
and all code that fills directories, calls these functions itself, so that no command can forget it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from klog.base.errors import KlogError, PlanError, UnreadableError, UsageError
from klog.base.read_only import scan_directory
from klog.formats.names import ROOT_KINDS, FileKind, parse_file, parse_partition

_OF_LOG_DIRS: Final = sorted(kind.value for kind in ROOT_KINDS - {FileKind.LOCK})
"""Others too call their files .lock."""
_OF_PARTITIONS: Final = (FileKind.LEADER_EPOCHS.value, FileKind.PARTITION_METADATA.value)
_NEVER_STAGED: Final = (FileKind.META_PROPERTIES.value, FileKind.BOOTSTRAP.value)
_Known = dict[tuple[int, int] | None, tuple[str, str | None]]
"""The known directories by inode: a directory of Kafka's, and None; or one inside of it, and that one."""
_ADVICE: Final = "give a path outside of log dirs and partitions"


def check_output(path: str, paths: Iterable[str] = ()) -> None:
    """Raise UsageError if no file may be written at *path*.  *paths*: the input of the same command.

    Raises UnreadableError, as the two below do, if a directory that may be a partition's cannot be listed.
    """
    _raise(UsageError, _refusal(path, _known(_read_as_kafkas(paths))))


def is_stream(path: str) -> bool:
    """Whether *path* is a pipe, a socket or a device, or a process's name for one of its open files (`/dev/stdout`).

    Output is written into such a path: to replace it by a new file would, as root, remove the whole machine's
    `/dev/null`.
    """
    folder = os.path.realpath(os.path.dirname(path) or os.curdir)
    try:
        leads_to = os.readlink(path) if os.path.islink(path) else ""
        mode = os.stat(path).st_mode
    except OSError:
        return False
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return not is_file or leads_to.startswith("/proc/") or folder.startswith("/proc/")


def check_directory(path: str, paths: Iterable[str] = (), *, is_ours: bool = False) -> None:
    """Raise UsageError if no directory may be created or filled at *path*.  *paths*: the input of the same command.

    *is_ours*: klog itself is creating a log dir there.
    """
    _raise(UsageError, _refusal(path, _known(_read_as_kafkas(paths)), is_directory=True, is_ours=is_ours))


def check_places(
    log_dirs: Sequence[str], *, backups: Iterable[str] = (), staging: Iterable[str] = (), files: Iterable[str] = ()
) -> None:
    """Raise PlanError if something that belongs to a plan for *log_dirs* may not be in its place.

    *files*: such as the plan's own.
    """
    known = _known(log_dirs)
    for file in files:
        if is_stream(file):
            raise PlanError(f"{file}: is a pipe or a device; a plan needs a file, for new content waits beside it")
        _raise(PlanError, _refusal(file, known))
    for backup in backups:
        _raise(PlanError, _refusal(backup, known, is_directory=True))
        staging = [*staging, *(path for path in _paths(backup) if os.path.islink(path))]
    for place in staging:
        # It has checkpoints, so it looks like a log dir.
        is_ours = not any(os.path.lexists(os.path.join(place, name)) for name in _NEVER_STAGED)
        _raise(PlanError, _refusal(place, known, is_directory=True, is_ours=is_ours))


def _raise(kind: type[KlogError], refusal: str | None) -> None:
    if refusal is not None:
        raise kind(refusal)


def _read_as_kafkas(paths: Iterable[str]) -> list[str]:
    """Return those of *paths* that klog reads as log dirs or partition directories."""
    found = [path for path in paths if os.path.isdir(path)]
    if not found:
        return []
    from klog.data_dir.selection import open_path

    def is_kafkas(path: str) -> bool:
        try:
            open_path(path)
        except KlogError:
            return False
        return True

    return [path for path in found if is_kafkas(path)]


def _refusal(path: str, known: _Known, *, is_directory: bool = False, is_ours: bool = False) -> str | None:
    """Return why nothing may be written at *path*; None if it may.  *known*: Kafka's directories.

    *is_directory*: a directory will be created.  *is_ours*: it may look like a log dir itself.
    """
    ends = [os.path.realpath(path)]
    if not is_directory:
        # A new file replaces a link under its name; neither the link nor its target may be Kafka's.
        folder, name = os.path.split(path)
        ends.append(os.path.join(os.path.realpath(folder or os.curdir), name))
    for end in ends:
        why = _why_not(end, known, is_directory, is_ours)
        if why is not None:
            return f"{path}: {'' if end == os.path.abspath(path) else f'leads to {end}, which '}{why}; {_ADVICE}"
    return None


def _why_not(end: str, known: _Known, is_directory: bool, is_ours: bool) -> str | None:
    around = list(_upwards(end))
    found = _met(around, known)
    for directory in around:
        if found is None and not (is_ours and directory == end):
            found = _sign(directory, _log_dir_sign(directory), "log dir")
    for directory in around:
        if found is None and not (is_ours and directory == end):
            found = _sign(directory, _partition_sign(directory), "partition directory")
    if found is not None:
        why = "where a broker would stop over it" if is_directory else "which is for Kafka's files alone"
        return f"lies in the {found}, {why}"
    if os.path.lexists(end) and not os.path.isdir(end) and _is_kafkas(os.path.basename(end)):
        return "is one of Kafka's files"
    return None


def _sign(directory: str, sign: str | None, what: str) -> str | None:
    """Return the kind of a directory, and the evidence for it; None without evidence."""
    return None if sign is None else f"{what} {directory} (it has {sign})"


def _upwards(path: str) -> Iterator[str]:
    """Yield *path* and the directories above it, as far as they exist."""
    while True:
        if os.path.isdir(path):
            yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


def _inode(path: str) -> tuple[int, int] | None:
    """Return device and inode of a directory; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _known(directories: Iterable[str]) -> _Known:
    """Return *directories*, which are Kafka's, and their content, by inode."""
    known: _Known = {}
    for directory in directories:
        # There may be thousands: a name is checked for being a partition's only when it is met.
        for path in _paths(directory):
            known.setdefault(_inode(path), (path, directory))
        known[_inode(directory)] = directory, None
    known.pop(None, None)
    return known


def _met(around: Sequence[str], known: _Known) -> str | None:
    """Return the topmost of *around* that is in *known*; None if none is."""
    for path, inside in (known[inode] for inode in map(_inode, reversed(around)) if inode in known):
        if inside is None:
            is_partition = _partition_sign(path) is not None and _log_dir_sign(path) is None
            return f"{'partition directory' if is_partition else 'log dir'} {path}"
        if parse_partition(os.path.basename(path)) is not None:
            return f"partition directory {path}"
    return None


def _partitions(directory: str) -> Iterator[str]:
    """Yield the entries of a directory that are named like a partition."""
    return (path for path in _paths(directory) if parse_partition(os.path.basename(path)) is not None)


def _paths(directory: str) -> Iterator[str]:
    """Yield the paths of a directory's entries; nothing if it cannot be listed."""
    try:
        names = os.listdir(directory)
    except OSError:  # in that case its entries are checked when they are written
        names = []
    return (os.path.join(directory, name) for name in names)


def _names(directory: str) -> list[str]:
    """Return the names in a directory, none if it does not exist.  Raises OSError."""
    try:
        with scan_directory(directory) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def own_file(directory: str) -> str | None:
    """Return the name of a file that only log dirs have; None if there is none."""
    return next((name for name in _OF_LOG_DIRS if os.path.lexists(os.path.join(directory, name))), None)


def _log_dir_sign(directory: str) -> str | None:
    """Return the name of the file that makes a directory a log dir; None if it is not one."""
    name = own_file(directory)
    if name is not None:
        return name
    if not os.path.lexists(os.path.join(directory, FileKind.LOCK.value)):
        return None
    return next((os.path.basename(path) for path in _partitions(directory) if _partition_sign(path)), None)


def _partition_sign(directory: str) -> str | None:
    """Return the name of the file that makes a directory a partition; None if it is not one.

    People copy single segments and checkpoints anywhere, so these count only beside a partition's name, or together.
    Raises UnreadableError if the name is a partition's and the rest cannot be known.
    """
    is_named = parse_partition(os.path.basename(os.path.abspath(directory))) is not None
    if not is_named and not any(os.path.lexists(os.path.join(directory, name)) for name in _OF_PARTITIONS):
        return None
    try:
        names = _names(directory)
    except OSError as error:
        if is_named:
            why = f"cannot be listed: {error.strerror}; it may be a partition's"
            raise UnreadableError(f"{directory}: {why}") from error
        return None
    found = (name for name in names if name != FileKind.LOCK.value and _is_kafkas(name))
    return next((name for name in found if is_named or name not in _OF_PARTITIONS), None)


def _is_kafkas(name: str) -> bool:
    """Whether a broker would have called a file so."""
    found = parse_file(name)
    return found.kind is not FileKind.OTHER and found.canonical
