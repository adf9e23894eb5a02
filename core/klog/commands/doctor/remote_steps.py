"""The steps that keep the part of a partition that is in remote storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.commands.doctor.diagnosis import LogDirFate, NextStep, PartitionFate
from klog.commands.doctor.step_forms import command_step, manual_step
from klog.commands.doctor.tiered_fates import ENABLED, TIERING_OFF


def remote_steps(row: PartitionFate, log_dirs: Sequence[LogDirFate], tier: str) -> Iterator[NextStep]:
    """Yield the steps for a partition whose remote segments would be deleted or hidden: one for all of its topic.

    *tier*: the place of the objects.
    """
    if row.reason == TIERING_OFF:
        yield manual_step(f"write {ENABLED}=true into the broker's file", "its log start would move to the local log")
        return
    into = [word for one in log_dirs for word in ("--to", one.path)]
    words = ("--remote", tier, *into, "--topic", row.topic, "--apply")
    yield command_step("klog", "remote", "attach", *words, why=f"{row.topic}: {row.message}")
