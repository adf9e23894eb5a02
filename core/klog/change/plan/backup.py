"""Backs up files before a plan changes them, in the backup directory of each log dir.

    plan.json                           the plan itself
    originals/orders-3/….index          files that are going to be replaced or removed: the very file by a second name,
                                        or a copy where it is going to be cut as well, or on another file system
    tails/orders-3/….log                the end that is going to be cut from a file
    lost+found/orders-3/…1841@8192-9226 bytes of a log that the result will not have; beside it, as .json, why
    staged/orders-3/….index             new files, until they get their names
    unfinished                          there from the beginning of the plan to its end

All of it is synced before the first action, with the modes, owners and times of the originals.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from klog.base.read_only import inode_of, names_if_there
from klog.change.plan.file_history import FileHistory, Original, files_beside
from klog.change.plan.find_plans import is_same, kept_plan, remove_pointers, write_pointers
from klog.change.plan.model import (
    PLAN,
    STAGED,
    UNFINISHED,
    Action,
    CutOut,
    FileState,
    Plan,
    StaleError,
    file_state,
    is_as_known,
    status_of,
)
from klog.change.plan.plan_document import plan_pieces
from klog.data_dir.disk.directory_tree import (
    in_pieces,
    link,
    make_directories,
    remove_emptied,
    remove_made,
    remove_tree,
)
from klog.data_dir.disk.disk_changes import Disk, OpenFile
from klog.formats.names import FileKind

ORIGINALS = "originals"
TAILS = "tails"
LOST_AND_FOUND = "lost+found"
_TMP = ".tmp"


def original_place(plan: Plan, log_dir: int, file: str) -> str:
    """Return where the original of a file is kept whole."""
    return os.path.join(plan.backups[log_dir], ORIGINALS, file)


def tail_place(plan: Plan, log_dir: int, file: str) -> str:
    """Return where the end is kept that was cut from a file."""
    return os.path.join(plan.backups[log_dir], TAILS, file)


class BackupWriter:
    """Keeps the originals that an undo needs, and prepares the new files.

    Files and directories that this run has made are removed again by `clean`.  *is_new*: no earlier run has begun, and
    a file in its way is another program's.
    """

    def __init__(self, plan: Plan, disk: Disk, is_new: bool) -> None:
        self._plan = plan
        self._disk = disk
        self._is_new = is_new
        self._made: list[str] = []
        self._directories = set[str]()
        self._to_sync: dict[str, None] = {}
        self._read = dict(plan.known_here)
        self._brought: dict[tuple[int, int], str] = {}

    def write_plan(self) -> None:
        """Write the plan into each backup, with the state of the files beside its own.

        Raises StaleError when another plan is there, OSError, UnreadableError.
        """
        plan = self._plan._replace(staging=())
        for backup in self._plan.backups:
            self._directory(os.path.join(backup, STAGED))
            path = os.path.join(backup, PLAN)
            if os.path.lexists(path):
                kept = kept_plan(path)
                if kept is None or not is_same(kept, self._plan):
                    raise StaleError(f"{path}: the backup of another plan; name another directory with --backup")
                if kept.actions or not plan.actions:
                    plan = plan._replace(beside=kept.beside)
                    continue
            if plan.beside is None:
                plan = plan._replace(beside=files_beside(plan))
            self._begin(os.path.join(backup, UNFINISHED))
            temporary = f"{path}{_TMP}"
            self._write(temporary, plan_pieces(plan))
            self._disk.sync([temporary])
            self._disk.rename(temporary, path)
            self._made[-1] = path
            self._to_sync.pop(temporary)
        for backup in self._plan.backups:
            self._to_sync.update(dict.fromkeys(_up_from(backup)))
        for pointer in write_pointers(self._plan, self._disk):
            self._to_sync[pointer] = self._to_sync[os.path.dirname(pointer)] = None
        self._sync()

    def _begin(self, marker: str) -> None:
        if os.path.lexists(marker):
            self._mark(marker)
        else:
            self._disk.close(self._new(marker))

    def keep(self, found: list[FileHistory]) -> None:
        """Keep the originals of all files that are untouched, and make sure that those of the others are there."""
        for history in found:
            if history.before is not None and history.original is not Original.NONE:
                self._keep(history, history.before)
        # Unreadable parts have no copy; the plan has their positions, and the original is kept.
        untouched = {
            (history.log_dir, history.file)
            for history in found
            if history.is_untouched and not (history.before and history.before.is_unreadable)
        }
        for cut in self._plan.cuts:
            if (cut.log_dir, cut.file) in untouched:
                self._cut_out(cut)

    def _keep(self, history: FileHistory, before: FileState) -> None:
        tail = history.original is Original.TAIL
        place = (tail_place if tail else original_place)(self._plan, history.log_dir, history.file)
        if not history.is_untouched:
            if status_of(place) is None:
                raise StaleError(f"{place}: gone, and {history.path} is already changed: the plan could not be undone")
            return
        after = self._plan.actions[history.actions[0]].after
        if tail and after is not None:
            self._copy(history.path, after.size, before.size, place, before)
        elif not (history.original is Original.WHOLE and self._link(history.path, place)):
            self._copy(history.path, 0, before.size, place, before)

    def _cut_out(self, cut: CutOut) -> None:
        status = status_of(self._plan.path(cut.log_dir, cut.file))
        assert status is not None, "an untouched file that has something to cut out is there"
        directory, _, name = cut.file.rpartition("/")
        stem = f"{name.removesuffix('.log')}@{cut.start}-{cut.end}"
        place = os.path.join(self._plan.backups[cut.log_dir], LOST_AND_FOUND, directory, stem)
        owner = FileState(0, "", status.st_mode & 0o777, status.st_uid, status.st_gid, status.st_mtime_ns)
        self._copy(self._plan.path(cut.log_dir, cut.file), cut.start, cut.end, place, owner)
        facts = {
            "file": cut.file,
            "log_dir": self._plan.log_dirs[cut.log_dir],
            "start": cut.start,
            "end": cut.end,
            "reason": cut.reason,
            "plan": self._plan.id,
            **cut.facts,
        }
        import json

        self._write(f"{place}.json", [json.dumps(facts, indent=1).encode("ascii"), b"\n"])

    def stage(self, found: list[FileHistory]) -> None:
        """Make ready the new content of all puts that are to do.  Raises StaleError when it is missing or another."""
        for place in [place for history in found for place in history.to_do]:
            action = self._plan.actions[place]
            if action.source is not None and action.staged is not None:
                self._stage(action, action.source, action.staged)
        self._sync()

    def _stage(self, action: Action, source: str, after: FileState) -> None:
        backup = self._plan.backups[action.log_dir]
        target = os.path.join(backup, STAGED, source)
        origin = os.path.join(self._plan.staged(action.log_dir), source)
        state = self._state(target, after)
        if (state is None or state.content != after.content) and origin != target:
            if status_of(origin) is None:
                raise StaleError(f"{origin}: gone, although the plan needs it for {action.file}; make the plan again")
            self._bring(origin, target, after)
            state = self._state(target, after)
        if state is None or state.content != after.content:
            what = "gone" if state is None else "not in the state of the plan"
            raise StaleError(f"{target}: {what}, although the plan needs it for {action.file}; make the plan again")
        like = self._like(action)
        if state != after or like is not None:
            with self._disk.closing(self._disk.open(target)) as file:
                if like is not None:
                    self._disk.copy_attributes(like, file)
                self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
            self._read[inode_of(os.lstat(target))] = after
        self._mark(target)

    def _like(self, action: Action) -> str | None:
        """Return the file whose extended attributes new content receives: the replaced one, else a log beside it.

        None without one, and for content of an undo: that has its own.
        """
        if self._plan.undoes is not None:
            return None
        path = self._plan.path(action.log_dir, action.file)
        if os.path.isfile(path):
            return path
        directory, name = os.path.split(path)
        log = f"{name.partition('.')[0]}.{FileKind.LOG.value}"
        if not os.path.isfile(os.path.join(directory, log)):
            log = max((one for one in names_if_there(directory) if one.endswith(f".{FileKind.LOG.value}")), default="")
        return os.path.join(directory, log) if log else None

    def _state(self, path: str, wanted: FileState) -> FileState | None:
        """Return the state of a file that should be *wanted*; a hard-linked file is read once.

        A file that this process has written is not read at all, as long as its size and time are unchanged.
        """
        status = status_of(path)
        if status is None:
            return None
        inode = inode_of(status)
        known = self._read.get(inode)
        if known is not None and known.digest_start == wanted.digest_start and is_as_known(status, known):
            return known
        state = file_state(path, start=wanted.digest_start, or_unreadable=wanted.is_unreadable)
        if state is not None:
            self._read[inode] = state
        return state

    def _bring(self, origin: str, target: str, after: FileState) -> None:
        """Add a staged file to the backup, too; a hard-linked file keeps two names there."""
        first = self._brought.setdefault(inode_of(os.lstat(origin)), target)
        if self._link(origin, target) or (first != target and self._link(first, target)):
            return
        self._copy(origin, 0, after.size, target, after)
        # The inode may have been that of a deleted file.
        self._read.pop(inode_of(os.lstat(target)), None)

    def clean(self) -> None:
        """Remove the files of this run, as far as the disk permits: the plan is not applied."""
        for path in reversed(self._made):
            try:
                if os.path.isdir(path):
                    self._disk.remove_directory(path)
                else:
                    self._disk.unlink(path)
            except OSError:
                continue  # the error that stopped the plan is the one to report
        if not os.path.lexists(os.path.join(self._plan.backups[0], PLAN)):
            remove_pointers(self._plan, self._disk)

    def _directory(self, path: str) -> None:
        if path not in self._directories:
            self._made += make_directories(path, self._disk)
            self._directories.add(path)

    def _link(self, source: str, target: str) -> bool:
        """Give *source* a second name in the backup; False if that cannot be."""
        self._directory(os.path.dirname(target))
        is_there = os.path.lexists(target) and os.path.samestat(os.lstat(target), os.lstat(source))
        if not is_there:
            self._make_way(target)
            if not link(source, target, self._disk):
                return False
            self._made.append(target)
        # The file itself too: perhaps no broker has synced it, and nothing will once it is only the original.
        self._mark(target)
        return True

    def _copy(self, source: str, start: int, end: int, target: str, like: FileState) -> None:
        """Copy a part of a file into the backup, over a copy that an earlier run has not finished."""
        with self._disk.closing(self._new(target)) as file:
            self._disk.copy(source, start, end, file)
            self._disk.copy_attributes(source, file)
            self._disk.set_metadata(file, like.mode, like.uid, like.gid, like.modified_ns)

    def _write(self, target: str, content: Iterable[bytes]) -> None:
        with self._disk.closing(self._new(target)) as file:
            for piece in in_pieces(content):
                self._disk.write(file, piece)

    def _new(self, target: str) -> OpenFile:
        self._directory(os.path.dirname(target))
        self._make_way(target)
        file = self._disk.create(target)
        self._made.append(target)
        self._mark(target)
        return file

    def _make_way(self, target: str) -> None:
        """Delete a leftover of an earlier run that blocks a new file's name.  Raises StaleError for anything else."""
        if not os.path.lexists(target):
            return
        if self._is_new and os.path.basename(target) != f"{PLAN}{_TMP}":
            raise StaleError(
                f"{target}: exists, and does not belong to this plan; name another directory with --backup"
            )
        self._disk.unlink(target)

    def _mark(self, path: str) -> None:
        """Have a file synced, with all directories down to it, also those that existed before."""
        while path not in self._plan.backups and path not in self._to_sync:
            self._to_sync[path] = None
            path = os.path.dirname(path)
        self._to_sync[path] = None

    def _sync(self) -> None:
        """Return when all that was made so far is on the disk."""
        self._disk.sync(list(self._to_sync))
        self._to_sync = {}


def _up_from(backup: str) -> Iterator[str]:
    """Yield a backup directory and those above it on its file system, as far as they may be opened.

    A planner may have made any of them, and without its name in the one above, a synced file is lost.
    """
    device = os.stat(backup).st_dev
    while os.stat(backup).st_dev == device:
        if os.access(backup, os.R_OK):
            yield os.path.realpath(backup)
        if backup == os.path.dirname(backup):
            return
        backup = os.path.dirname(backup)


def end_plan(plan: Plan, disk: Disk) -> None:
    """Remove the files that only an unfinished plan needs: its staged files, and the marker.  Raises OSError.

    Files of other programs beside them are kept.
    """
    for number, backup in enumerate(plan.backups):
        staged = os.path.join(backup, STAGED)
        if staged in plan.made_here:
            remove_tree(staged, disk)
        else:
            sources = (one.source for one in plan.actions if one.log_dir == number and one.source is not None)
            remove_emptied(staged, sources, disk)
    disk.sync([backup for backup in plan.backups if os.path.isdir(backup)])
    for backup in plan.backups:
        marker = os.path.join(backup, UNFINISHED)
        if os.path.lexists(marker):
            disk.unlink(marker)
            disk.sync([backup])


def drop_staged(plan: Plan, disk: Disk) -> None:
    """Remove the files that this process has staged in backups for a plan that will not be applied, if the disk
    permits.

    Staged files beside a plan's file are kept with the plan.
    """
    staged = [place for place in (os.path.join(backup, STAGED) for backup in plan.backups) if place in plan.made_here]
    try:
        for place in staged:
            remove_tree(place, disk)
        if staged:
            remove_made(plan.made_here, disk)
    except OSError:
        pass  # the error that stopped the plan is the one to report
