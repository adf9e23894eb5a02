"""The shortest safe way to a start that loses nothing: klog's commands where there are some, else one exact sentence.

First what the broker would destroy, then what stops it, then what it would set aside.  Nothing here loses anything:
directories are only moved, and what klog changes can be undone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final

from klog.doctor.outcome import SERVED, Diagnosis, Fate, LogDirFate, NextStep, PartitionFate, StartFailure
from klog.errors import counted
from klog.formats.names import FileKind
from klog.metadata.loader import ClusterMetadata

_RECOVERED: Final = {
    "log-start-beyond-end": "all its records would be deleted: the log start is beyond the end",
    "torn-tail": "new batches would go where nobody reads them, or get offsets that are in use",
    "epochs-malformed": "the broker refuses leader-epoch-checkpoint",
}
_DESTROYS: Final = (Fate.EMPTIES, Fate.DELETES, Fate.REPLACED)


def next_steps(diagnosis: Diagnosis, cluster: ClusterMetadata | None, node_id: int) -> Iterator[NextStep]:
    """Yield the steps from here; none when the start is as one wants it."""
    steps = _Steps(diagnosis, cluster, node_id)
    found = [*steps.metadata(), *steps.failure(), *steps.log_dirs()]
    rows = sorted(diagnosis.partitions, key=lambda row: row.fate not in _DESTROYS)
    destroyed = [step for row in rows if row.fate in _DESTROYS for step in steps.row(row)]
    aside = [step for row in rows if row.fate not in _DESTROYS for step in steps.row(row)]
    seen: set[tuple[str | None, str | None]] = set()
    for step in [*destroyed, *found, *aside]:
        if (step.command, step.manual) not in seen:
            seen.add((step.command, step.manual))
            yield step


def _manual(sentence: str, why: str) -> NextStep:
    return NextStep(None, sentence, why)


def _command(*words: str, why: str) -> NextStep:
    return NextStep(shlex.join(words), None, why)


class _Steps:
    def __init__(self, diagnosis: Diagnosis, cluster: ClusterMetadata | None, node_id: int) -> None:
        self._diagnosis, self._cluster, self._node_id = diagnosis, cluster, node_id
        self._served = {(row.topic, row.partition) for row in diagnosis.partitions if row.fate in SERVED}

    # the node

    def metadata(self) -> Iterator[NextStep]:
        for note in self._diagnosis.notes:
            if note.id in ("metadata-log-missing", "metadata-log-damaged"):
                sentence = (
                    "restore the directory __cluster_metadata-0 from another controller or a backup before the first "
                    "start; klog metadata compare shows which copy is ahead"
                )
                yield _manual(sentence, note.message)

    def failure(self) -> Iterator[NextStep]:
        failure = self._diagnosis.failure
        if failure is None:
            return
        place = os.path.join(failure.log_dir or "", failure.directory or "")
        meta = os.path.join(failure.log_dir or "", FileKind.META_PROPERTIES.value)
        sentence = {
            "lock-held": f"stop the process that holds {os.path.join(place, '.lock')}, and ask again",
            "foreign-directory": f"move {place} out of the log dir",
            "metadata-log-elsewhere": f"move {place} out, or set metadata.log.dir={failure.log_dir}",
            "quorum-state-malformed": f"move {os.path.join(place, 'quorum-state')} out: a node starts without it",
            "metadata-log-refused": f"restore {place} from another controller or a backup",
            "node-id-differs": f"start this broker with the node.id that {meta} has, or give it its own log dirs",
            "cluster-id-differs": f"{failure.log_dir} is of another cluster: take it out of log.dirs",
            "log-dir-unusable": f"repair or mount {failure.log_dir}, or take it out of log.dirs",
        }.get(failure.id)
        if sentence is not None:
            yield _manual(sentence, failure.message)
        elif failure.id.startswith(("meta-properties", "directory-id")):
            yield self._meta(failure, meta)

    def _meta(self, failure: StartFailure, meta: str) -> NextStep:
        if failure.id.startswith("directory-id") and len(free := self._free_ids()) == 1:
            return _manual(f"set directory.id={free[0]} in {meta}", failure.message)
        if failure.id.startswith("directory-id"):
            return _manual(f"remove the line directory.id from {meta}: the broker makes a new one", failure.message)
        known = next((one.cluster_id for one in self._diagnosis.log_dirs if one.cluster_id), "CLUSTER_ID")
        free = self._free_ids()
        lines = [f"node.id={self._node_id}", "version=1", f"cluster.id={known}"]
        lines += [f"directory.id={free[0]}"] if len(free) == 1 else []
        return _manual(f"write {meta} with the lines {', '.join(lines)}", failure.message)

    def _free_ids(self) -> list[str]:
        """Return the directory ids that the metadata have for this broker and that no log dir has."""
        broker = None if self._cluster is None else self._cluster.brokers.get(self._node_id)
        taken = {one.directory_id for one in self._diagnosis.log_dirs}
        return [one for one in (broker.log_dirs if broker is not None else ()) if one not in taken]

    def log_dirs(self) -> Iterator[NextStep]:
        for one in self._diagnosis.log_dirs:
            if one.reason == "checkpoint-malformed":
                why = "a checkpoint that the broker refuses takes the log dir offline"
                yield _command("klog", "recover", one.path, "--apply", why=why)
            elif one.reason == "meta-properties-malformed" and self._diagnosis.failure is None:
                meta = os.path.join(one.path, FileKind.META_PROPERTIES.value)
                yield self._meta(StartFailure(one.reason, "the log dir goes offline", one.path), meta)
            elif one.reason == "log-dir-unusable" and self._diagnosis.failure is None:
                yield _manual(f"repair or mount {one.path}, or take it out of log.dirs", "the log dir goes offline")
            if one.path in self._leaderless_dirs:
                yield self._directory_id(one)

    @property
    def _leaderless_dirs(self) -> set[str | None]:
        return {row.log_dir for row in self._diagnosis.partitions if row.fate is Fate.LEADERLESS}

    def _directory_id(self, one: LogDirFate) -> NextStep:
        """Return the step that gives a log dir the id back that the metadata have for its partitions."""
        assert self._cluster is not None
        wanted: dict[str, int] = {}
        for row in self._diagnosis.partitions:
            if row.log_dir == one.path and row.fate is Fate.LEADERLESS:
                found = self._cluster.partition(row.topic, row.partition)
                if found is not None and found.directories and self._node_id in found.replicas:
                    directory = found.directories[found.replicas.index(self._node_id)]
                    wanted[directory] = wanted.get(directory, 0) + 1
        meta = os.path.join(one.path, FileKind.META_PROPERTIES.value)
        best = max(wanted, key=lambda directory: wanted[directory])
        why = f"{counted(wanted[best], 'partition')} of it may have no leader"
        return _manual(f"set directory.id={best} in {meta}", why)

    # the partitions

    def row(self, row: PartitionFate) -> Iterator[NextStep]:
        path = os.path.join(row.log_dir or "", row.directory or "")
        if row.reason in _RECOVERED:
            yield _command("klog", "recover", path, "--apply", why=_RECOVERED[row.reason])
        elif row.reason == "future-without-current":
            wanted = os.path.join(row.log_dir or "", f"{row.topic}-{row.partition}")
            yield _manual(f"rename {path} to {wanted}", f"{row.lost_records} records are only there")
        elif row.reason == "recovery-cuts":
            if row.lost_records:
                why = f"recovery would cut {counted(row.lost_records, 'intact record')} behind the damage"
                yield _command("klog", "recover", path, "--salvage", "--apply", why=why)
        elif row.reason == "metadata-malformed" or (row.reason == "topic-id-missing" and row.becomes == "empty"):
            yield self._topic_id(row, path)
        elif row.fate is Fate.STRAYS:
            yield _manual(f"move {path} out of every log dir", f"the broker would set it aside: {row.message}")
        elif row.fate in (Fate.DELETES, Fate.KEEPS):
            yield from self._aside(row, path)
        elif row.fate is Fate.REPLACED and row.lost_records:
            yield _manual(f"move {path} out of every log dir", f"{row.lost_records} records are only there")
        elif row.fate is Fate.REFUSES:
            yield from self._refused(row, path)

    def _topic_id(self, row: PartitionFate, path: str) -> NextStep:
        topic_id = None if self._cluster is None else self._cluster.topic_ids.get(row.topic)
        file = os.path.join(path, FileKind.PARTITION_METADATA.value)
        if topic_id is None:
            return _manual(f"move {path} out of every log dir", f"the broker refuses {file}")
        sentence = f"write {file} with the lines `version: 0` and `topic_id: {topic_id}`"
        return _manual(sentence, "without it the broker does not know whose records these are")

    def _aside(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        if not row.lost_records and row.fate is Fate.KEEPS:
            return
        if row.becomes == "empty" and row.lost_records:
            wanted = os.path.join(row.log_dir or "", f"{row.topic}-{row.partition}")
            yield _manual(f"rename {path} to {wanted}", f"{row.lost_records} records are only there")
        else:
            why = "the broker removes it" if row.fate is Fate.DELETES else "no broker serves it"
            yield _manual(f"move {path} out of every log dir", why)

    def _refused(self, row: PartitionFate, path: str) -> Iterator[NextStep]:
        if row.reason == "duplicate-partition":
            yield from self._duplicate(row)
        elif row.reason == "checkpoint-malformed":
            why = "a checkpoint that the broker refuses takes the log dir offline"
            yield _command("klog", "recover", row.log_dir or "", "--apply", why=why)
        elif row.reason == "future-beside-current":
            yield _manual(f"move {path} out of every log dir", "it cannot take the place of the partition beside it")
        elif row.reason == "foreign-log-name":
            yield _manual(f"move the file out of {path} that {row.message} names", "the broker takes it for a segment")
        else:
            yield _command("klog", "recover", path, "--apply", why=row.message)

    def _duplicate(self, row: PartitionFate) -> Iterator[NextStep]:
        same = [
            other
            for other in self._diagnosis.partitions
            if (other.topic, other.partition, other.reason) == (row.topic, row.partition, row.reason)
        ]
        places = [os.path.join(one.log_dir or "", one.directory or "") for one in same]
        ends = ", ".join(f"{place} ends at {one.log_end}" for place, one in zip(places, same, strict=True))
        shorter = places[min(range(len(same)), key=lambda i: (same[i].log_end or 0, -_age(places[i])))]
        yield _manual(f"move {shorter} out of every log dir", f"the same partition twice: {ends}")


def _age(path: str) -> float:
    """Return how long ago the newest log in a directory was written, as a number that only compares."""
    try:
        return -max((entry.stat().st_mtime for entry in os.scandir(path) if entry.name.endswith(".log")), default=0.0)
    except OSError:
        return 0.0
