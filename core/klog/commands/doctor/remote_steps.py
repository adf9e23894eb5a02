"""The steps that keep the part of a partition that is in remote storage."""

from __future__ import annotations

from collections.abc import Iterator

from klog.commands.doctor.diagnosis import Fate, NextStep, PartitionFate
from klog.commands.doctor.step_forms import manual_step
from klog.commands.doctor.tiered_fates import ENABLED, TIERING_OFF
from klog.formats.internal_topics import REMOTE_LOG_METADATA


def remote_steps(row: PartitionFate) -> Iterator[NextStep]:
    """Yield the steps for a partition whose remote segments would be deleted or hidden."""
    if row.reason == TIERING_OFF:
        yield manual_step(f"write {ENABLED}=true into the broker's file", "its log start would move to the local log")
    elif row.fate is Fate.FORGETS_REMOTE:
        sentence = f"restore the directory {row.topic}-{row.partition} from a copy of this disk, before the first start"
        yield manual_step(sentence, row.message)
    else:
        sentence = f"restore the directories {REMOTE_LOG_METADATA}-N from a copy of this disk, before the first start"
        yield manual_step(sentence, row.message)
