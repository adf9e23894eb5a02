"""The shortest safe way to a start that loses nothing: klog's commands if possible, otherwise one exact sentence.

The order: data that the broker would destroy, then faults that stop it, then directories that it would set aside.  No
step loses data: directories are only moved, and klog's changes can be undone.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from klog.base.errors import counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.assumed_repairs import AssumedRepairs
from klog.commands.doctor.diagnosis import TORN_TAIL, Diagnosis, Fate, LogDirFate, LogDirState, NextStep, PartitionFate
from klog.commands.doctor.meta_properties_check import foreign_names
from klog.commands.doctor.metadata_facts import VERSION_STEP, directories_of, is_only_node, most_wanted_id
from klog.commands.doctor.remote_steps import remote_steps
from klog.commands.doctor.step_forms import (
    ROW_STEPS,
    URGENT_REASONS,
    command_step,
    duplicate_step,
    manual_step,
    metadata_file_step,
    move_step,
    replaced_steps,
    spare_copy_step,
)
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.root_files import read_small
from klog.formats.names import INTERNAL, FileKind
from klog.formats.properties import MetaProperties, read_properties
from klog.partition.start.metadata_log import DIRECTORY
from klog.partition.start.start_reasons import CHECKPOINT_NUMBER, WATERMARK_NUMBER, StartFailure

_RECOVERED: Final = {
    "log-start-beyond-end": "all its records would be deleted: the log start is beyond the end",
    TORN_TAIL: "new batches would be unreadable, or would get offsets that are in use",
    "txn-index-wrong": "read_committed consumers would receive aborted records, or miss committed ones",
    "index-wrong": "consumers and followers would skip records",
    "epochs-malformed": "the broker refuses leader-epoch-checkpoint",
}
_UNUSABLE: Final = "repair or mount {}, or free room in it, or remove it from log.dirs"
_TAKES: Final = "takes the log dir offline"
_KEEPS: Final = "keeps it from leading partitions"
_REMOTE: Final = (Fate.FORGETS_REMOTE, Fate.HIDES_REMOTE)
_DESTROYS: Final = (Fate.EMPTIES, Fate.DELETES, Fate.REPLACED, *_REMOTE)
_DESTROYED, _NODE, _ADOPTED, _ASIDE = range(4)
"""The order of steps: klog adopt needs a sound node; recovery of a log dir truncates data to be salvaged."""
_MOST_FOREIGN: Final = 20  # directories to move that are named one by one


class StepFinder:
    """Gathers the steps of one play of the start after the other, each on a disk with the former steps applied.

    *expected*: directory ids that the cluster is known to have for log dirs, by path.
    """

    def __init__(self, expected: Mapping[str, str], repairs: AssumedRepairs) -> None:
        self.repairs = repairs
        self._expected = expected
        self._found: dict[tuple[str | None, str | None], tuple[int, NextStep]] = {}

    @property
    def steps(self) -> tuple[NextStep, ...]:
        """All of them, in a safe order."""
        return tuple(step for _, step in sorted(self._found.values(), key=lambda ranked: ranked[0]))

    def add(self, diagnosis: Diagnosis, cluster: ClusterMetadata | None, node_id: int) -> bool:
        """Add the steps for the faults that a play met; return whether it hid some that the next may find."""
        before, steps = self.repairs.count, _Steps(diagnosis, cluster, node_id, self.repairs, self._expected)
        for rank, step in (*steps.node(), *steps.partitions()):
            self._found.setdefault((step.command, step.manual), (rank, step))
        is_hiding = (
            diagnosis.failure is not None
            or any(one.fate is LogDirState.OFFLINE for one in diagnosis.log_dirs)
            or any(row.fate is Fate.LEADERLESS for row in diagnosis.partitions)
        )
        if is_hiding and self.repairs.count == before:
            self.repairs.is_blocked = True
        return is_hiding and not self.repairs.is_blocked


class _Steps:
    def __init__(
        self,
        diagnosis: Diagnosis,
        cluster: ClusterMetadata | None,
        node_id: int,
        repairs: AssumedRepairs,
        expected: Mapping[str, str],
    ) -> None:
        self._diagnosis, self._cluster, self._node_id, self._repairs = diagnosis, cluster, node_id, repairs
        self._expected = expected
        self._leaderless = Counter(row.log_dir for row in diagnosis.partitions if row.reason == "directory-id-unknown")

    def node(self) -> Iterator[tuple[int, NextStep]]:
        """Yield the steps for the node itself and its log dirs, with their ranks."""
        for step in (*self._metadata(), *self._failure(), *self._log_dirs(), *self._absent()):
            yield _NODE, step

    def partitions(self) -> Iterator[tuple[int, NextStep]]:
        """Yield the steps for partitions, with their ranks."""
        for row in self._diagnosis.partitions:
            steps = list(self._row(row))
            is_urgent = row.fate in _DESTROYS or row.reason in URGENT_REASONS
            adopts = any((step.command or "").startswith(("klog adopt", "klog remote attach")) for step in steps)
            for step in self._readable_checkpoints() if adopts else ():
                yield _NODE, step
            for step in steps:
                yield (_ADOPTED if adopts else _DESTROYED) if is_urgent else _ASIDE, step

    # the node

    def _metadata(self) -> Iterator[NextStep]:
        for note in self._diagnosis.notes:
            if note.id in ("metadata-log-missing", "metadata-log-damaged"):
                self._repairs.is_blocked = True
                sentence = (
                    "restore the directory __cluster_metadata-0 from another controller before the first start, or from"
                    " a backup; one that is older than the logs hands out producer ids and leader epochs again; klog"
                    " metadata compare shows which copy is ahead"
                )
                if note.id == "metadata-log-damaged":
                    sentence += "; klog metadata plan with --base continues from the part before the damage"
                yield manual_step(sentence, note.message)
            elif note.id == "metadata-log-behind":
                yield self._behind(note.message)

    def _behind(self, why: str) -> NextStep:
        """Return the step to a metadata log that is not behind."""
        log_dirs = [one.path for one in self._diagnosis.log_dirs]
        is_damaged = "metadata-log-damaged" in self._diagnosis.unsafe
        if self._cluster is not None and not is_damaged and is_only_node(self._cluster, self._node_id):
            return command_step(
                "klog", "metadata", "plan", *log_dirs, f"--only-broker={self._node_id}", "--apply", why=why
            )
        self._repairs.is_blocked = True
        sentence = (
            "take __cluster_metadata-0 from another node whose copy is not behind, klog metadata compare shows which is"
            " ahead; if all are behind, klog metadata plan --voters appends the missing records"
        )
        return manual_step(sentence, why)

    def _failure(self) -> Iterator[NextStep]:
        failure = self._diagnosis.failure
        if failure is None:
            return
        log_dir = failure.log_dir or ""
        place = os.path.join(log_dir, failure.directory or "")
        meta = os.path.join(log_dir, FileKind.META_PROPERTIES.value)
        sentence = {
            "lock-held": f"stop the process that holds {os.path.join(place, '.lock')}, and ask again",
            "metadata-log-elsewhere": f"move {place} out, or set metadata.log.dir={failure.log_dir}",
            "quorum-state-malformed": f"move {os.path.join(place, 'quorum-state')} out: a node starts without it",
            "metadata-log-refused": f"restore {place} from another controller, or from a backup that is not older than"
            " the logs",
            "node-id-differs": f"start this broker with the node.id that {meta} has, or give it its own log dirs",
            "cluster-id-differs": f"{failure.log_dir} is of another cluster: remove it from log.dirs",
            "log-dir-unusable": _UNUSABLE.format(failure.log_dir),
        }.get(failure.id, VERSION_STEP.get(failure.id))
        if sentence is not None:
            yield manual_step(sentence, failure.message)
        elif failure.id in ("bootstrap-malformed", "metadata-snapshot-damaged"):
            yield metadata_file_step(failure, is_spare=self._cluster is not None)
        elif failure.id == "foreign-directory":
            yield from self._foreign(failure, log_dir)
        elif failure.id.startswith("meta-properties"):
            yield self._meta(log_dir, failure.message)
        elif failure.id.startswith("directory-id"):
            here = (one for one in self._diagnosis.log_dirs if one.path == log_dir)
            yield from (self._directory_id(one, failure.message) for one in here)
        if failure.id == "metadata-log-elsewhere":
            self._repairs.moved.add(place)
        elif failure.id == "quorum-state-malformed":
            self._repairs.quorum_state, self._repairs.metadata = True, None
        elif failure.id == "cluster-id-differs" and not os.path.lexists(os.path.join(log_dir, DIRECTORY)):
            self._repairs.taken.add(log_dir)

    def _foreign(self, failure: StartFailure, log_dir: str) -> Iterator[NextStep]:
        self._repairs.foreign.add(log_dir)
        names = foreign_names(LogDir(log_dir), self._diagnosis.version)
        for name in names[:_MOST_FOREIGN]:
            yield manual_step(f"move {os.path.join(log_dir, name)} out of the log dir", failure.message)
        if len(names) > _MOST_FOREIGN:
            rest = f"the other {len(names) - _MOST_FOREIGN} directories whose names are not a partition's"
            yield manual_step(f"move {rest} out of the log dir {log_dir}", failure.message)

    def _directory_id(self, one: LogDirFate, why: str) -> NextStep:
        """Return the step that gives a log dir the id that the metadata have for its partitions."""
        meta, wanted = os.path.join(one.path, FileKind.META_PROPERTIES.value), self._wanted_id(one.path)
        self._repairs.metas[one.path] = MetaProperties(1, one.cluster_id, one.node_id, wanted, {})
        if wanted is not None:
            return manual_step(f"set directory.id={wanted} in {meta}", why)
        return manual_step(f"remove the line directory.id from {meta}: the broker then creates a new one", why)

    def _meta(self, log_dir: str, why: str) -> NextStep:
        """Return the step that rewrites the file."""
        meta, wanted = os.path.join(log_dir, FileKind.META_PROPERTIES.value), self._wanted_id(log_dir)
        cluster_id = next(
            (one.cluster_id for one in self._diagnosis.log_dirs if one.cluster_id), self._any_cluster_id()
        )
        is_kraft = self._diagnosis.version.is_kraft
        lines = {"node.id" if is_kraft else "broker.id": f"{self._node_id}", "version": f"{int(is_kraft)}"}
        lines |= {"cluster.id": cluster_id or "CLUSTER_ID"} | ({} if wanted is None else {"directory.id": wanted})
        self._repairs.metas[log_dir] = MetaProperties(int(is_kraft), lines["cluster.id"], self._node_id, wanted, lines)
        if cluster_id is None or self._node_id < 0:
            self._repairs.is_blocked = True  # they are not known here
        sentence = f"write {meta} with the lines {', '.join(f'{name}={value}' for name, value in lines.items())}"
        if not os.path.isdir(log_dir):
            sentence = f"mount {log_dir}, or, if it is gone for good, make it and {sentence}"
        return manual_step(sentence, why)

    def _any_cluster_id(self) -> str | None:
        """Return the cluster id in a file that a broker refuses for other lines."""
        for one in self._diagnosis.log_dirs:
            content = read_small(os.path.join(one.path, FileKind.META_PROPERTIES.value))
            found = read_properties(content) if isinstance(content, bytes) else content
            if isinstance(found, dict) and "cluster.id" in found:
                return found["cluster.id"]
        return None

    def _wanted_id(self, log_dir: str) -> str | None:
        """Return the directory id that the metadata have for most partitions of a log dir.

        If it has none of their partitions, return the only id of this broker that no log dir has.
        """
        if log_dir in self._expected or self._cluster is None:
            return self._expected.get(log_dir)
        broker = self._cluster.brokers.get(self._node_id)
        registered = {one for one in broker.log_dirs if one} if broker is not None else set()
        others = [one for one in self._diagnosis.log_dirs if one.path != log_dir]
        free = registered - {one.directory_id for one in others}
        if (most := most_wanted_id(self._cluster, self._node_id, log_dir, free)) is not None:
            return most
        # Other log dirs may lack their ids as well, and have partitions that show them.
        free -= {
            most_wanted_id(self._cluster, self._node_id, one.path, free)
            for one in others
            if one.directory_id not in registered
        }
        return next(iter(free)) if len(free) == 1 else None

    def _log_dirs(self) -> Iterator[NextStep]:
        for one in self._diagnosis.log_dirs:
            if one.reason in ("checkpoint-malformed", WATERMARK_NUMBER):
                self._repairs.recovered.add(one.path)
                why = f"a checkpoint that the broker refuses {_KEEPS if one.reason == WATERMARK_NUMBER else _TAKES}"
                yield command_step("klog", "recover", one.path, "--apply", why=why)
            elif one.reason == "meta-properties-malformed" and self._diagnosis.failure is None:
                yield self._meta(one.path, "the log dir goes offline")
            elif one.reason == "log-dir-unusable" and self._diagnosis.failure is None:
                yield manual_step(_UNUSABLE.format(one.path), "the log dir goes offline")
            count = self._leaderless[one.path] or self._leaderless[None]
            if count and self._wanted_id(one.path) not in (None, one.directory_id):
                yield self._directory_id(one, f"{counted(count, 'partition')} may have no leader")

    def _absent(self) -> Iterator[NextStep]:
        """Yield a step for each directory id in the metadata that no log dir has, or is to get."""
        if self._cluster is None or not self._leaderless.total():
            return
        here = {one.directory_id for one in self._diagnosis.log_dirs}
        here |= {one.directory_id for one in self._repairs.metas.values()}
        ids = directories_of(self._cluster, self._node_id)
        rows = (row for row in self._diagnosis.partitions if row.reason == "directory-id-unknown")
        for wanted, count in Counter(ids.get((row.topic, row.partition)) for row in rows).items():
            if wanted is not None and wanted not in here:
                mount = f"mount the log dir with directory.id={wanted} and name it in log.dirs"
                sentence = f"{mount}, or, if it is one of these, set its directory.id back to that"
                yield manual_step(sentence, f"{counted(count, 'partition')} may have no leader")

    # the partitions

    def _row(self, row: PartitionFate) -> Iterator[NextStep]:
        path = os.path.join(row.log_dir or "", row.directory or "")
        if row.goes_with_its_log_dir:
            return
        if row.fate in (Fate.OFFLINE, Fate.REFUSES):
            yield from self._refused(row, path)
        elif row.reason in _RECOVERED:
            yield command_step("klog", "recover", path, "--apply", why=_RECOVERED[row.reason])
        elif row.reason in ROW_STEPS:
            yield ROW_STEPS[row.reason](row)
        elif row.reason == "future-without-current":
            wanted = os.path.join(row.log_dir or "", f"{row.topic}-{row.partition}")
            yield manual_step(f"rename {path} to {wanted}", f"{counted(row.lost_records, 'record')} only there")
        elif row.reason == "recovery-cuts" and row.lost_records:
            why = f"recovery would cut {counted(row.lost_records, 'intact record')} behind the damage"
            yield command_step("klog", "recover", path, "--salvage", "--apply", why=why)
        elif row.fate in _REMOTE:
            yield from remote_steps(row, self._diagnosis.log_dirs, self._diagnosis.tier)
        elif row.fate is Fate.STRAYS:
            yield from self._stray(row, path)
        elif row.reason == "future-beside-current":
            yield move_step(path, row.message)
        elif row.fate is Fate.DELETES or (row.fate is Fate.KEEPS and row.lost_records):
            yield from self._aside(row, path)
        elif row.fate is Fate.REPLACED and row.lost_records:
            yield from replaced_steps(row, self._diagnosis.partitions)

    def _topic_id(self, row: PartitionFate, path: str) -> NextStep:
        topic_id = None if self._cluster is None else self._cluster.topic_ids.get(row.topic)
        file = os.path.join(path, FileKind.PARTITION_METADATA.value)
        if not self._diagnosis.version.is_kraft:
            return manual_step(f"move {file} out", "the broker refuses it, and needs none")
        if topic_id is None:
            self._repairs.moved.add(path)
            return move_step(path, f"the broker refuses {file}")
        sentence = f"write {file} with the lines `version: 0` and `topic_id: {topic_id}`"
        return manual_step(sentence, "without it the broker does not know the topic of these records")

    def _aside(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        if row.becomes == "empty" and row.lost_records:
            yield from self._adopt(row, path)
        if row.becomes != "empty" or row.fate is Fate.DELETES or not row.lost_records:
            yield move_step(path, "the broker removes it" if row.fate is Fate.DELETES else "no broker serves it")

    def _stray(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        if row.reason == "topic-id-missing" and self._cluster is not None and self._cluster.is_tiered(row.topic):
            yield self._topic_id(row, path)  # klog adopt takes no log whose beginning is in remote storage
            return
        is_wanted = row.topic not in INTERNAL or row.reason == "topic-id-missing"
        if row.becomes == "empty" and row.lost_records and is_wanted:
            yield from self._adopt(row, path)
            return
        has = "as many partitions as it had" if row.topic in INTERNAL else "such a partition here"
        restored = f"; once the topic has {has}, klog adopt restores it" if row.lost_records else ""
        yield move_step(path, f"the broker would set it aside: {row.message}{restored}")

    def _adopt(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        """Yield the step that adopts a partition; of its directories the longest of the right topic counts."""
        rivals = [
            one
            for one in self._diagnosis.partitions
            if (one.topic, one.partition) == (row.topic, row.partition) and one.becomes == "empty" and one.lost_records
        ]
        if max(rivals, key=lambda one: (one.fate is not Fate.STRAYS, one.lost_records)) is not row:
            yield move_step(
                path, "another directory of the partition has more, or has the topic id that the cluster has"
            )
            return
        for one in rivals:
            if one is not row and one.fate is Fate.STRAYS:  # in the future place of this one
                yield from self._adopt(one, os.path.join(one.log_dir or "", one.directory or ""))
        into = [word for one in self._diagnosis.log_dirs for word in ("--to", one.path)]
        why = row.message
        if row.fate is Fate.KEEPS:
            why = "the broker loads no directory of such a name"
        elif row.fate is Fate.DELETES:
            why = f"the broker removes it {row.message}"
        where = "in a -stray directory" if row.fate is Fate.STRAYS else "there"
        why = f"the {counted(row.lost_records, 'record')} of {row.directory} would exist only {where}: {why}"
        yield command_step("klog", "adopt", path, *into, "--apply", why=why)

    def _readable_checkpoints(self) -> Iterator[NextStep]:
        """Yield the repair of each checkpoint that a broker passes over, and that klog adopt does not write beside."""
        for one in self._diagnosis.log_dirs:
            prefix = os.path.join(one.path, "")
            if any(note.id == CHECKPOINT_NUMBER and note.message.startswith(prefix) for note in self._diagnosis.notes):
                why = "klog adopt changes no log dir that has an unreadable checkpoint"
                yield command_step("klog", "recover", one.path, "--apply", why=why)

    def _refused(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        if row.reason == "duplicate-partition":
            shorter, step = duplicate_step(row, self._diagnosis.partitions)
            self._repairs.moved.add(shorter)
            yield step
        elif row.reason == "checkpoint-malformed":
            self._repairs.recovered.add(row.log_dir or "")
            why = f"a checkpoint that the broker refuses {_TAKES}"
            yield command_step("klog", "recover", row.log_dir or "", "--apply", why=why)
        elif (spare := spare_copy_step(row, self._diagnosis.partitions)) is not None:
            self._repairs.moved.add(path)
            yield spare
        else:
            self._repairs.loadable.add(path)
            yield self._mended(row, path)
            partition = Partition(path)
            if row.reason != "metadata-malformed" and partition.metadata is not None and partition.topic_id is None:
                yield self._topic_id(row, path)

    def _mended(self, row: PartitionFate, path: str) -> NextStep:
        if row.reason == "metadata-malformed":
            return self._topic_id(row, path)
        if row.reason == "foreign-log-name":
            file = os.path.join(path, row.message.rpartition(": ")[2])
            return manual_step(f"move {file} out", "the broker treats it as a segment")
        if row.reason == "unreadable":
            return manual_step(f"make {path} readable", row.message)
        return command_step("klog", "recover", path, "--apply", why=_RECOVERED.get(row.reason or "", row.message))
