"""The price of the repairs that `klog doctor` proposes: what the preview of `klog recover` would say."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Sink
from klog.change.plan.model import Loss
from klog.change.plan.session import PlanOptions, PlanSession
from klog.commands.recover.recovery import recover_log_dirs
from klog.data_dir.selection import PartitionQuery
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions

MOST_BYTES = 1 << 30
"""The most bytes of logs that are read to find out the price of a repair."""


class RepairCost(NamedTuple):
    """*losses*: of a repair.  *unread_bytes*: logs are so large that they were not read for it.

    *is_all_broker_keeps*: a broker's own recovery would keep no more records.  *left*: partitions that it leaves
    damaged.  *obstacle*: the reason why the price is not known.
    """

    losses: tuple[Loss, ...] = ()
    unread_bytes: int = 0
    is_all_broker_keeps: bool = False
    left: int = 0
    obstacle: str = ""


class RepairCosts:
    """The price of one repair after the other; a loss counts once.

    *read_all*: whatever the size of the logs.
    """

    def __init__(self, read_all: bool, sink: Sink) -> None:
        self._read_all, self._sink = read_all, sink
        self._known: set[Loss] = set()

    def of(self, command: str) -> RepairCost | None:
        """Return the price of a command; None if it is no `klog recover`."""
        program, name, *arguments = shlex.split(command)
        if (program, name) != ("klog", "recover"):
            return None
        mode = RecoverMode.SALVAGE if "--salvage" in arguments else RecoverMode.DEFAULT
        paths = [argument for argument in arguments if not argument.startswith("--")]
        try:
            return self._planned(mode, paths)
        except KlogError as error:  # a plan that is half done, for example: the preview meets it as well
            return RepairCost(obstacle=str(error))

    def _planned(self, mode: RecoverMode, paths: Sequence[str]) -> RepairCost:
        with PlanSession(PartitionQuery(paths), PlanOptions("recover")) as session:
            size = sum(part.size for one in session.selections for part in one.partitions)
            if size > MOST_BYTES and not self._read_all:
                return RepairCost(unread_bytes=size)
            options = RecoverOptions(mode, int(time.time() * 1000))
            found = recover_log_dirs(session.selections, options, session.staging, {}, self._sink)
        losses = tuple(loss for loss in found.losses if loss not in self._known)
        self._known.update(losses)
        broker, ours = found.broker_would_keep, found.kept
        is_all = broker is not None and (broker.records or 0) <= (ours.records or 0)
        return RepairCost(losses, 0, is_all, sum(bool(result.left or result.fails) for result in found.results))
