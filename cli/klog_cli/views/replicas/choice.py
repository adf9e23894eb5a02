"""The replicas that a command line chooses: for all partitions, and partition by partition."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from klog.base.errors import UsageError
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import KAFKA, LONGEST, NEWEST, CopyChoice
from klog.commands.replicas.copy_plan import CopyPlanSettings
from klog.commands.replicas.disks import BrokerDisk

_EXPIRATION_MS = 24 * 3600 * 1000

_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_CHOICE = re.compile(r"(.+)-([0-9]{1,10})=([0-9]{1,10})", re.DOTALL)


def chosen(given: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the nodes that `T-P=N` choose, by topic and partition.  Raises UsageError."""
    found = {}
    for text in given:
        parts = _CHOICE.fullmatch(text)
        if parts is None:
            raise UsageError(f"--choose {text}: expected TOPIC-PARTITION=NODE, orders-0=2")
        found[parts[1], int(parts[2])] = int(parts[3])
    return found


def copy_settings(
    disks: Sequence[BrokerDisk],
    keep: str | None,
    choices: Sequence[str],
    repairs: bool,
    *,
    without: Sequence[str] = (),
) -> CopyPlanSettings:
    """Return the settings of `--keep`, `--choose`, `--repair` and `--without`; those of topics are still missing.

    Raises UsageError.
    """
    nodes = {disk.node for disk in disks}
    kept: str | int | None = keep
    if keep is not None and re.fullmatch(r"[0-9]{1,10}", keep):
        kept = int(keep)
        if kept not in nodes:
            raise UsageError(f"--keep {kept}: no disk of node {kept} is given")
    elif keep not in (None, NEWEST, LONGEST, KAFKA):
        raise UsageError(f"--keep {keep}: expected {NEWEST}, {LONGEST}, {KAFKA} or a node's id")
    log_dirs = {disk.log_dir.directory_id: disk.log_dir.path for disk in disks}
    absent = {one for one in without if _DIRECTORY_ID.fullmatch(one)}
    for one in without:
        if re.fullmatch(r"[0-9]{1,10}", one) is None and one not in absent:
            raise UsageError(f"--without {one}: expected a node's id, or the directory.id of a log dir")
        if one in log_dirs:
            raise UsageError(f"--without {one}: that log dir is given, {log_dirs[one]}")
        if one not in absent and int(one) in nodes:
            raise UsageError(
                f"--without {one}: the disk of node {one} is given; a log dir is left out by its directory.id"
            )
    choice = CopyChoice(kept, chosen(choices), repairs)
    for (topic, number), node in choice.chosen.items():
        if node not in nodes:
            raise UsageError(f"--choose {topic}-{number}={node}: no disk of node {node} is given")
    now_ms = int(time.time() * 1000)
    return CopyPlanSettings(
        choice,
        TopicConfig(),
        now_ms,
        _EXPIRATION_MS,
        frozenset(int(one) for one in without if one not in absent),
        without_log_dirs=frozenset(absent),
    )
