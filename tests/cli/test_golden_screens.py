"""The text of commands as terminals of 80 and 120 columns show it, with colours: `screens/` has what they show.

Each file has the command on its first line.  `KLOG_SCREENS=write` writes the files anew; read the change like code.
"""

from __future__ import annotations

import re
import shlex

import pytest

from tests.conftest import FIXTURES
from tests.support.terminal import check_screen, on_screen

SIZE = r"\d[\d.]* [KMGTP]?i?B"
OF_THE_DISK = re.compile(
    rf"{SIZE} of {SIZE}(?= are free)|{SIZE}(?= on (?:the )?disk)|(?<=frees ){SIZE}|(?:\[\w+\])?\d+% full(?:\[\])?"
)
"""Facts about the disk of the tests: its room, and the blocks that its files take."""
SPLIT = "replicas/split/broker-1 replicas/split/broker-2 replicas/split/broker-3"
BEHIND = "replicas/behind/broker-1 replicas/behind/broker-2 replicas/behind/broker-3"
COMMANDS = {
    "replicas-diff": f"replicas diff {SPLIT} --metadata replicas/split/controller-4",
    "replicas-diff-up": f"replicas diff {BEHIND} --metadata replicas/behind/controller-4 --up '3 then 1,2'",
    "space": "space modern --topic tx --topic dense --topic trimmed --by partition --now 2025-06-18T00:00:00Z",
    "space-free": "space modern --free 2M --now 2026-06-18T00:00:00Z",
    "transactions": "transactions modern --state open --state hanging --now 2026-11-23T00:00:00Z",
    "groups": "groups modern --group 'next*' --group sticky",
    "timeline": "timeline modern --topic tx --kind txn-abort,txn-commit,roll --limit 12",
    "lookup": "lookup modern/tx-0 --offset 500",
    "lookup-damage": "lookup crash/flip-middle/torn-0 --offset 302",
    "fetch": "fetch modern/tx-0 --offset 100 --partial --max-bytes 3000",
    "metadata-compare": "metadata compare replicas/quorum/broker-1 replicas/quorum/broker-2 replicas/quorum/broker-3",
    "metadata-show": "metadata show modern --topic tx",
    "describe": "describe modern --topic trimmed",
    "keys": "keys check replicas/keys/broker-1 --list 2",
    "audit-misrouted": "audit misrouted modern",
    "explain": "explain bad-crc active",
    "assign-check": "assign --check replicas/quorum/broker-1",
    "assign": "assign --brokers 0,1,2,3 --racks 0:a,1:a,2:b,3:b --fenced 3 --partitions 3 --replication 2 --seed 42",
    "stats": "stats modern --topic tx",
    "partition": "partition --partitions 6 user-1 user-2",
    "replicas-simulate": "replicas simulate replicas/simulate/loss-high-watermark.json",
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_looks_as_it_did(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)
    shown = on_screen(*shlex.split(COMMANDS[name]), columns=columns)
    text = f"$ klog {COMMANDS[name]}\n{OF_THE_DISK.sub('…', shown.marked)}"
    assert max(map(len, shown.plain.splitlines())) <= columns
    check_screen(f"{name}-{columns}", text)
