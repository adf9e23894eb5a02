"""Disks to diagnose, and a hand that follows the steps that the doctor names."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis, KafkaVersion, NextStep
from klog.commands.doctor.start_request import StartRequest

from tests.commands.doctor.broker import NAMES
from tests.commands.doctor.states import DISK_STATES, LOGS_NEEDED, PARTITION_STATES, Disk, set_checkpoint
from tests.conftest import run_klog

Change = Callable[[Disk], object]


def ask(folder: Path, version: str, cluster_id: str | None = None) -> Diagnosis:
    """Return the doctor's answer about the disk in *folder*."""
    log_dirs = [str(folder / name) for name in NAMES]
    return diagnose(StartRequest(log_dirs, KafkaVersion(version[:3]), 1, cluster_id, count_all=True))


def all_partition_states(disk: Disk) -> None:
    """Bring one partition after the other into another state."""
    for number, change in enumerate(PARTITION_STATES.values()):
        change(disk, number)


def combination(seed: int) -> tuple[str, Change]:
    """Return three to six states, and what brings a disk into them, as far as they go together."""
    chance = random.Random(seed)
    names = chance.sample([*DISK_STATES, *PARTITION_STATES], chance.randint(3, 6))
    numbers = chance.sample(range(24), len(names))

    def change(disk: Disk) -> None:
        for name, number in zip(names, numbers, strict=True):
            if name in PARTITION_STATES:
                PARTITION_STATES[name](disk, number)
        for name in names:
            if name in DISK_STATES and len(disk.logs1) >= LOGS_NEEDED.get(name, 0):
                with suppress(OSError, StopIteration, AssertionError, IndexError):
                    DISK_STATES[name](disk)

    return f"{seed}: {', '.join(names)}", change


def can_follow(steps: Sequence[NextStep]) -> bool:
    """Whether none asks for another configuration of the broker."""
    return not any("log.dirs" in (step.manual or "") for step in steps)


def follow(steps: Sequence[NextStep], aside: Path) -> None:
    """Carry out the steps, those of klog and the others.  *aside*: where directories are moved to."""
    aside.mkdir(exist_ok=True)
    for step in steps:
        if step.command is not None:
            done = run_klog(*step.command.split()[1:])
            assert not done.exit_code & ~5, (step, done)  # 4: other steps concern the rest
        elif found := re.match(r"move (\S+) out of every log dir", step.manual or ""):
            source = Path(found[1])
            source.rename(aside / f"{source.parent.name}-{source.name}")
        elif found := re.match(r"move (\S+) out( of the log dir|:|, or |$)", step.manual or ""):
            Path(found[1]).rename(aside / Path(found[1]).name)
        elif found := re.match(r"rename (\S+) to (\S+)$", step.manual or ""):
            Path(found[1]).rename(found[2])
        elif found := re.match(r"set (\S+)=(\S+) in (\S+)$", step.manual or ""):
            file = Path(found[3])
            lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{found[1]}=")]
            file.write_text("\n".join([*lines, f"{found[1]}={found[2]}"]) + "\n")
        elif found := re.match(r"remove the line (\S+) from ([^:]+):", step.manual or ""):
            file = Path(found[2])
            lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{found[1]}=")]
            file.write_text("\n".join(lines) + "\n")
        elif found := re.match(r"write (\S+) with the lines `(.*)` and `(.*)`", step.manual or ""):
            Path(found[1]).write_text(f"{found[2]}\n{found[3]}")
        elif found := re.search(r"lower the log start in the line `(\S+) (\d+) \d+` of (\S+) to ", step.manual or ""):
            file, start = Path(found[3]), re.search(r"the leader epochs begin at (\d+)$", step.why)
            assert start, step
            set_checkpoint(file.parent, file.name, found[1], int(found[2]), int(start[1]))
        elif found := re.search(r"write (\S+) with the lines (.*)$", step.manual or ""):
            Path(found[1]).parent.mkdir(exist_ok=True)
            Path(found[1]).write_text("\n".join(found[2].split(", ")) + "\n")
        else:
            raise AssertionError(f"nobody here can do this: {step}")
