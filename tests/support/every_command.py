"""A run of every command, for tests of rules that hold for all of them.

A command that is not here fails `tests/cli/test_every_command.py`.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from klog_cli.command_tree import build

from tests.commands.adopt import disks as adopt_disks
from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.support import tiers

NOW = "--now=1750000000000"
ON_ONE_DISK: Mapping[str, str] = {
    "describe": "describe data",
    "describe partition": "describe data/tx-0",
    "dump": "dump data",
    "dump rows": "dump --output jsonl data",
    "dump committed": "dump --output jsonl --isolation read_committed data",
    "dump partition": "dump data/tx-0",
    "bytes": "bytes data/tx-0 --offset 5",
    "bytes log": "bytes data/tx-0/00000000000000000000.log",
    "bytes index": "bytes data/tx-0/00000000000000000000.index",
    "bytes snapshot": "bytes data/tx-0/00000000000000000016.snapshot",
    "bytes checkpoint": "bytes data/replication-offset-checkpoint",
    "lookup": "lookup data/tx-0 --offset 5",
    "lookup time": "lookup data/tx-0 --timestamp 1",
    "records": "records data --full",
    "records jsonl": "records data/tx-0 --head -n 40 --output jsonl",
    "search": "search data",
    "stats": "stats data",
    "space": f"space data {NOW}",
    "export": "export data --output jsonl --to new",
    "fetch": "fetch data/tx-0 --offset 5 --isolation read_committed",
    "serve": "serve --listen 127.0.0.1:0 data/nothing",
    "verify": "verify data",
    "recover": f"recover data {NOW}",
    "recover salvage": f"recover data --salvage {NOW}",
    "truncate": f"truncate data/tx-0 --to-offset 5 {NOW}",
    "compact": f"compact data --policy compact {NOW}",
    "compact copy": f"compact data --policy compact --to new {NOW}",
    "compact estimate": f"compact data --policy compact --estimate {NOW}",
    "write": f"write data --to new --skip-bad {NOW}",
    "write into": f"write records.jsonl --topic plain --one-replica --to data {NOW}",
    "adopt": f"adopt data --to home {NOW}",
    "adopt into": f"adopt foreign/tx-0 --to data --replace {NOW}",
    "plans": "plans data",
    "doctor": "doctor data",
    "groups": "groups data",
    "groups offsets": "groups data --output reset-offsets --to new",
    "transactions": f"transactions data {NOW}",
    "timeline": "timeline data",
    "report": f"report data --to new {NOW}",
    "assign from": "assign --metadata data --partitions 2 --replication 1 --seed 1",
    "assign": "assign --check data",
    "partition": "partition --partitions 7 key",
    "keys check": "keys check data",
    "schemas check": "schemas check data",
    "schemas export": "schemas export data --to new",
    "schemas list": "schemas list data --deleted",
    "schemas show": "schemas show data --id 1",
    "audit headers": f"audit headers data {NOW}",
    "audit misrouted": "audit misrouted data",
    "metadata show": "metadata show data",
    "metadata history": "metadata history data --quorum",
    "metadata compare": "metadata compare data",
    "replicas simulate": "replicas simulate events.jsonl",
    "remote ls": "remote ls tiered/data --remote tiered/tier",
    "remote verify": "remote verify tiered/data --remote tiered/tier --deep",
    "remote fetch": f"remote fetch tiered/data --remote tiered/tier --to new {NOW}",
    "remote orphans": "remote orphans tiered/data --remote tiered/tier --older-than 0",
    "remote attach": f"remote attach --remote tiered/tier --to tiered/data {NOW}",
}
"""A command, and perhaps a remark, and its words beside `data`, a disk.  `new` does not exist."""
_NODES = "b1 b2 b3 c4"
ON_SEVERAL_DISKS: Mapping[str, str] = {
    "replicas diff": f"replicas diff {_NODES}",
    "replicas plan": f"replicas plan {_NODES} --keep newest",
    "replicas rescue": f"replicas rescue {_NODES} --if-leads 1 --to -",
    "metadata plan": f"metadata plan {_NODES} --only-broker 1 --keep newest",
    "spark search": "search b1",
}
"""The same beside the disks of three brokers and a controller."""
ELSEWHERE = (
    "apply",
    "undo",
    "follow",
    "explain",
    "browse",
    "completion",
    "spark verify",
    "spark audit",
    "spark stats",
    "spark export",
    "spark search",
    "spark compact",
)
"""They read no broker's disk, but a plan, a cluster or nothing; or, as Spark's jobs and the screens of browse, the same
as the commands of that name.
"""


def disks(folder: Path) -> None:
    """Make the input of `ON_ONE_DISK`, in an empty folder."""
    writable_copy(FIXTURES / "modern", folder / "data")
    tiers.unpack(folder / "tiered")
    adopt_disks.home(folder / "home")
    adopt_disks.foreign(folder / "foreign")
    (folder / "records.jsonl").write_text('{"topic":"plain","partition":1,"key":"k","value":"v"}\n')


def several(folder: Path) -> None:
    """Make the input of `ON_SEVERAL_DISKS`, in an empty folder."""
    for node in (1, 2, 3):
        writable_copy(FIXTURES / f"replicas/split/broker-{node}", folder / f"b{node}")
    writable_copy(FIXTURES / "replicas/split/controller-4", folder / "c4")


PASSING = re.compile(
    rb"klog-backup/[\w-]+|\b\d{8}-\d{6}-\w+-\w{4}\b|\d+ collisions? in \d+ probes?"
    rb"|^.* are free$|\d+% full: |\"free\":\d+",
    re.MULTILINE,
)
"""The ids of plans; the collisions of hashes with a seed that is drawn; the room on the disk in `klog space` and `klog
report`, which all processes of the machine take from."""


def run(words: str) -> Ran:
    """Run a command in the folder; the content of `new` is appended to its stdout, and removed."""
    new = Path("new")
    try:
        ran = run_klog(*words.split())
        written = [new] if new.is_file() else sorted(new.rglob("*")) if new.is_dir() else []
        content = b"".join(path.read_bytes() for path in written if path.is_file() and path.name not in _RANDOM)
    finally:
        if new.is_dir():
            shutil.rmtree(new)
        new.unlink(missing_ok=True)
    return Ran(PASSING.sub(b"", ran.stdout + content), ran.stderr, ran.exit_code)


_RANDOM = ("meta.properties", "partition.metadata")
"""They have ids that are drawn."""


def leaves() -> Iterator[str]:
    """Yield the words of each command that klog has."""

    def below(words: tuple[str, ...], group: Any) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below((*words, name), command)
            else:
                yield " ".join((*words, name))

    return below((), _tree())


@functools.cache
def _tree() -> Any:
    return typer.main.get_command(build())
