"""The copy of a live cluster's partitions: a log dir of klog's own that stores batches as a leader sends them.

    with CopyDir("copy") as copy:                       # made, or an earlier one
        copy.claim(cluster_id, "broker:9092")
        orders = copy.partition("orders", 3, topic_id, settings)
        taken = orders.append(records)                  # as a Fetch answer has them, fetched at `orders.end`
        orders.set_high_watermark(1841)
        copy.flush()                                    # what was appended survives a power cut from here on
        copy.write_follow_file(content)

`klog-follow.json` in it marks it as a copy: no other log dir is ever written.  A partition without new batches is not
touched.  After a kill or a power cut at any time, the copy is a prefix of the appended data, and the next opening
continues from there.  One thread at a time uses a copy and its partitions.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from klog.base.closing import Closing
from klog.base.errors import DamagedError, KlogError
from klog.base.read_only import is_missing, normalized
from klog.change.plan.draft import iso_seconds
from klog.change.plan.interrupted_plans import finish_interrupted
from klog.change.plan.model import TEMPORARY
from klog.change.plan.reporter import Reporter, SilentReporter
from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.live_directory import CopyDisk, remove_temporaries, replace_file
from klog.commands.follow.partition_plans import remove
from klog.data_dir.disk.directory_tree import make_directories, remove_made
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_directory
from klog.data_dir.locks import Locks
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import Malformed
from klog.formats.follow_file import FOLLOW_FILE, FollowFile, write_follow_file
from klog.formats.names import FileKind, PartitionState, cluster_id_is_legal, topic_is_legal
from klog.formats.properties import write_meta_properties
from klog.partition.append.appender import AppendSettings


class CopyDir(Closing):
    """The copy at *path*, from entering to leaving, under its `.lock`; an absent or empty directory becomes one.

    *cluster_id*: None until `claim`.  *follow_file*: its content at the last write, None before.  *reporter*: receives
    messages beside results.  Entering raises KlogError for a directory that is not a copy, before anything is touched;
    LockedError; DamagedError for files of a copy that cannot be read.  Leaving it leaves every partition as after a
    clean stop; after a refused write or an interrupted change, all files are left unchanged, for the next opening to
    repair.
    """

    cluster_id: str | None
    follow_file: FollowFile | None

    def __init__(self, path: str, disk: Disk | None = None, reporter: Reporter | None = None) -> None:
        self.path = os.path.abspath(normalized(path))
        self._disk, self._reporter = disk or Disk(), reporter or SilentReporter()
        self._partitions: dict[tuple[str, int], CopiedPartition] = {}

    def __enter__(self) -> CopyDir:
        check_directory(self.path, is_ours=True)
        self._check_ours()
        with ExitStack() as stack:
            self._made = make_directories(self.path, self._disk)
            stack.callback(remove_made, self._made, self._disk)
            locks = stack.enter_context(Locks([self.path], self._disk))
            self._check_ours()
            now_ms = int(time.time() * 1000)
            blocked = finish_interrupted([self.path], now_ms, self._disk, locks, self._reporter)
            if blocked:
                raise KlogError("; ".join(dict.fromkeys(blocked.values())))
            self._copy = CopyDisk(self.path, self._disk, self._reporter, locks)
            stack.callback(self._copy.files.close_all)
            remove_temporaries(self.path, self._disk)
            self._read()
            self._stack = stack.pop_all()
        return self

    def _check_ours(self) -> None:
        """Raise KlogError unless there is nothing, an empty directory, or an earlier copy."""
        if not os.path.lexists(self.path):
            return
        if not os.path.isdir(self.path):
            raise KlogError(f"{self.path}: is no directory")
        names = os.listdir(self.path)
        unfinished = (FileKind.LOCK.value, f"{FOLLOW_FILE}{TEMPORARY}")
        if FOLLOW_FILE not in names and any(name not in unfinished for name in names):
            elsewhere = "give a path outside of log dirs and partitions"
            raise KlogError(f"{self.path}: not empty, and no copy ({FOLLOW_FILE}); {elsewhere}")

    def _read(self) -> None:
        """Read whose copy it is."""
        root = self._copy.root
        found, meta = root.follow_file, root.meta
        for name, content in ((FOLLOW_FILE, found), (FileKind.META_PROPERTIES.value, meta)):
            if isinstance(content, Malformed):
                advice = "correct it, or begin a new copy elsewhere"
                raise DamagedError(f"{os.path.join(self.path, name)}: {content}; {advice}")
        self.follow_file = found if isinstance(found, FollowFile) else None
        self.cluster_id = root.cluster_id or (self.follow_file.cluster_id if self.follow_file is not None else None)

    # its cluster

    def claim(self, cluster_id: str, bootstrap: str) -> None:
        """Make it a copy of that cluster; call this before the first partition.

        Raises KlogError, without a change, if it is a copy of another cluster, or the id does not fit a line of
        `meta.properties`; OSError.
        """
        if not cluster_id_is_legal(cluster_id):
            raise KlogError(
                f"{bootstrap}: its meta.properties has cluster id {cluster_id[:60]!r}, which is not a valid cluster id"
            )
        known = {self.cluster_id, self.follow_file.cluster_id if self.follow_file is not None else None} - {None}
        if known - {cluster_id}:
            raise KlogError(
                f"{self.path}: a copy of cluster {known.pop()}, and {bootstrap} is cluster {cluster_id}: nothing was"
                " changed; name another directory"
            )
        now_ms = int(time.time() * 1000)
        with self._copy.writing():
            if self.follow_file is None:
                self.write_follow_file(FollowFile(cluster_id, bootstrap, iso_seconds(now_ms), {}, {}))
            path = os.path.join(self.path, FileKind.META_PROPERTIES.value)
            if not os.path.lexists(path):
                replace_file(path, write_meta_properties(cluster_id, now_ms), self._disk)
                self._disk.sync([self.path])
            self._copy.offsets.write()
            self._disk.sync([os.path.dirname(path) for path in self._made])
            self._made = []
        self.cluster_id = cluster_id

    def write_follow_file(self, content: FollowFile) -> None:
        """Give `klog-follow.json` this *content*; return when it is on the disk.  Raises OSError."""
        with self._copy.writing():
            replace_file(os.path.join(self.path, FOLLOW_FILE), write_follow_file(content), self._disk)
            self._disk.sync([self.path])
        self.follow_file = content

    def names(self) -> list[tuple[str, int]]:
        """Return the topic and number of each partition that is there, opened or not.  Raises UnreadableError."""
        found = [one.name for one in LogDir(self.path).partitions if one.state is PartitionState.CURRENT]
        return [(name.topic, name.partition) for name in found if name is not None and name.canonical]

    def topic_id(self, topic: str, number: int) -> str | None:
        """Return the topic id in the directory of a partition; None if it has none, or is missing."""
        return Partition(os.path.join(self.path, f"{topic}-{number}")).topic_id

    def is_empty(self, topic: str, number: int) -> bool:
        """Whether the directory of a partition has no files, as where `remove` was interrupted at its very end.

        Raises UnreadableError.
        """
        partition = Partition(os.path.join(self.path, f"{topic}-{number}"))
        if not is_missing(partition.path):
            partition.check_listed()
        return not partition.files

    def remove(self, topic: str, number: int) -> str | None:
        """Remove a partition from the copy; return the backup of its files, None if it had none.

        As with `CopiedPartition.replace`, `klog undo` restores it.  Raises KlogError, OSError.
        """
        opened = self._partitions.pop((topic, number), None)
        self._copy.settle([opened] if opened is not None else [])
        return remove(self._copy, os.path.join(self.path, f"{topic}-{number}"))

    def partition(
        self, topic: str, number: int, topic_id: str | None, settings: AppendSettings, cut_at: int | None = None
    ) -> CopiedPartition:
        """Return a partition, the same one each time; create it if it is missing.

        *topic_id*: of the leader's topic, for a new directory; if the existing one belongs to another topic, its
        `topic_id` differs, and `CopiedPartition.replace` starts over.  *settings*: those by which segments roll.  A
        torn tail is cut first; a log that ends below its recovery point is cut only if *cut_at* is that end, which the
        CutShortError of a call without it contains.  Raises KlogError for an impossible name, and for a path that is no
        directory; DamagedError, UnreadableError, OSError.
        """
        found = self._partitions.get((topic, number))
        if found is not None:
            return found
        if not topic_is_legal(topic) or not 0 <= number < 1 << 31:
            raise KlogError(f"{topic[:60]!r}-{number}: no partition can have this name")
        path = os.path.join(self.path, f"{topic}-{number}")
        if not os.path.lexists(path):
            with self._copy.writing():
                self._disk.make_directory(path)
            self._copy.has_new_directories = True
        elif os.path.islink(path) or not os.path.isdir(path):
            raise KlogError(f"{path}: no directory; move it away")
        found = self._partitions[topic, number] = CopiedPartition(self._copy, topic, number, topic_id, settings, cut_at)
        return found

    # to the disk

    def flush(self) -> None:
        """Return when all appended batches are on the disk, and the checkpoints include them.  Raises OSError."""
        self._copy.flush()

    def close(self) -> None:
        """Leave all partitions as after a clean stop, and release the lock.  Raises OSError."""
        with self._stack:
            if self._copy.failure is None and self.cluster_id is not None:
                self._copy.settle(self._partitions.values())
