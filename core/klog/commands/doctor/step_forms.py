"""The forms of a step on the way to a start that loses nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from klog.base.errors import counted
from klog.cluster.metadata.metadata_loader import snapshot_files
from klog.commands.doctor.diagnosis import COPY_DAMAGED, HANGING, TORN_TAIL, Fate, NextStep, PartitionFate
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind
from klog.partition.start.start_reasons import OTHER_TOPIC, RETENTION_EARLY, StartFailure


def manual_step(sentence: str, why: str) -> NextStep:
    """Return a step outside of klog."""
    return NextStep(None, sentence, why)


def move_step(path: str, why: str) -> NextStep:
    """Return the step that moves a directory away."""
    return manual_step(f"move {path} out of every log dir", why)


def command_step(*words: str, why: str) -> NextStep:
    """Return the step that a command of klog does."""
    return NextStep(shlex.join(words), None, why)


def log_start_step(row: PartitionFate) -> NextStep:
    """Return the step that lowers the log start of a partition in the checkpoint of its log dir."""
    file = os.path.join(row.log_dir or "", FileKind.LOG_STARTS.value)
    line = f"the line `{row.topic} {row.partition} {row.log_start}` of {file}"
    sentence = f"unless the records below it were deleted on purpose, lower the log start in {line} to the start of the"
    return manual_step(f"{sentence} leader epochs", row.message)


def hanging_step(row: PartitionFate) -> NextStep:
    """Return the step that ends a transaction without a coordinator."""
    sentence = (
        "restore __transaction_state, if a copy that is not older than the logs exists, or end the transaction after"
        " the start with kafka-transactions"
    )
    return manual_step(sentence, row.message)


def early_step(row: PartitionFate) -> NextStep:
    """Return the step that rebuilds a time index."""
    why = "the first retention pass would remove young records: by a time index they are old"
    return command_step("klog", "recover", os.path.join(row.log_dir or "", row.directory or ""), "--apply", why=why)


def other_topic_step(row: PartitionFate) -> NextStep:
    """Return the step for a directory with the topic id of another topic."""
    path = os.path.join(row.log_dir or "", row.directory or "")
    file = os.path.join(path, FileKind.PARTITION_METADATA.value)
    sentence = f"if {path} is of {row.topic}, write the topic id of {row.topic} into {file}; otherwise move it out"
    return manual_step(sentence, row.message)


def spare_copy_step(row: PartitionFate, rows: Iterable[PartitionFate]) -> NextStep | None:
    """Return the step for a copy that the broker does not load; None if it loads no partition that it is a copy of."""
    path = os.path.join(row.log_dir or "", row.directory or "")
    if row.reason == "future-beside-current":
        return move_step(path, "it cannot replace the partition beside it")
    refused = (Fate.REFUSES, Fate.OFFLINE)
    names = (one.directory for one in rows if one.topic == row.topic and one.fate not in refused)
    if not (row.directory or "").endswith("-future") or f"{row.topic}-{row.partition}" not in names:
        return None
    return move_step(path, "the partition is in another log dir, and the move can begin again after the start")


def replaced_steps(row: PartitionFate, rows: Iterable[PartitionFate]) -> Iterator[NextStep]:
    """Yield the steps for a partition that a copy replaces which lacks records of it: one of the two moves away.

    A copy that ends where the partition ends, or before, has nothing that the partition lacks, as far as offsets show
    it.  A longer one gets the partition's name: the broker empties a copy without its partition.
    """
    key, some = (row.topic, row.partition), counted(row.lost_records, "record")
    path = os.path.join(row.log_dir or "", row.directory or "")
    for copy in rows:
        if (copy.topic, copy.partition) == key and copy.fate in (Fate.PROMOTES, Fate.LEADERLESS):
            rival = os.path.join(copy.log_dir or "", copy.directory or "")
            if (copy.log_end or 0) <= (row.log_end or 0):
                yield move_step(rival, f"the partition has {some} that this copy of it lacks")
                return
            yield move_step(path, f"{some} only there")
            wanted = os.path.join(copy.log_dir or "", f"{row.topic}-{row.partition}")
            yield manual_step(f"rename {rival} to {wanted}", "a copy without its partition may be emptied")
            return
    yield move_step(path, f"{some} only there")


def duplicate_step(row: PartitionFate, rows: Iterable[PartitionFate]) -> tuple[str, NextStep]:
    """Return the shorter directory of a partition that is there twice, and the step that moves it away."""
    key = row.topic, row.partition, row.reason
    same = [one for one in rows if (one.topic, one.partition, one.reason) == key]
    places = [os.path.join(one.log_dir or "", one.directory or "") for one in same]
    ends = ", ".join(f"{place} ends at {one.log_end}" for place, one in zip(places, same, strict=True))
    shorter = places[min(range(len(same)), key=lambda i: (same[i].log_end or 0, -_age(places[i])))]
    return shorter, move_step(shorter, f"the same partition twice: {ends}")


def _age(path: str) -> float:
    """Return how long ago the newest log in a directory was written, as a number that only compares."""
    try:
        return -max((entry.stat().st_mtime for entry in os.scandir(path) if entry.name.endswith(".log")), default=0.0)
    except OSError:
        return 0.0


def damaged_copy_step(row: PartitionFate) -> NextStep:
    """Return the step that keeps a copy from becoming the partition."""
    why = "the broker would replace the partition with it; after the start the move can begin again"
    return move_step(os.path.join(row.log_dir or "", row.directory or ""), why)


ROW_STEPS: Final[Mapping[str | None, Callable[[PartitionFate], NextStep]]] = {
    "log-start-raised": log_start_step,
    HANGING: hanging_step,
    OTHER_TOPIC: other_topic_step,
    RETENTION_EARLY: early_step,
    COPY_DAMAGED: damaged_copy_step,
}
"""The steps that a row's reason alone decides."""

URGENT_REASONS: Final = ("recovery-cuts", TORN_TAIL, "log-start-raised", COPY_DAMAGED)
"""The reasons of rows whose data the broker would destroy, or whose new data no client could read."""


def metadata_file_step(failure: StartFailure, *, is_spare: bool) -> NextStep:
    """Return the step for a file beside the metadata log, or a snapshot in it, that a node does not read.

    *is_spare*: the other files have all that a snapshot should have.
    """
    place = os.path.join(failure.log_dir or "", failure.directory or "")
    if failure.directory is None:
        file = os.path.join(place, FileKind.BOOTSTRAP.value)
        return manual_step(f"move {file} out: a node that has a metadata log starts without it", failure.message)
    if is_spare:
        newest = snapshot_files(Partition(place))[0].name
        sentence = f"move {os.path.join(place, newest)} out: older files of the directory have all of it"
        return manual_step(sentence, failure.message)
    sentence = f"restore {place} from another controller, or from a backup that is not older than the logs"
    return manual_step(sentence, failure.message)
