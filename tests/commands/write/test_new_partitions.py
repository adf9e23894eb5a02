"""A new topic gets the partitions that its records name, unless --partitions gives a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Ran

Klog = Callable[..., Ran]


def directories(klog: Klog, tmp_path: Path, numbers: list[int | None], *words: object) -> list[str]:
    """Write a record for each of *numbers* (None: names no partition), and return the directories of partitions."""
    lines = [
        {"topic": "orders", "key": None, "value": "v"} | ({} if one is None else {"partition": one}) for one in numbers
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = klog("write", tmp_path / "in.jsonl", "--to", tmp_path / "new", *words)
    assert done.exit_code == 0, done.stderr
    return sorted(path.name for path in (tmp_path / "new").iterdir() if path.is_dir())


def test_as_many_as_the_records_name(klog: Klog, tmp_path: Path) -> None:
    """Those that no record names are there, and empty."""
    assert directories(klog, tmp_path, [0, 3, 1]) == [f"orders-{number}" for number in range(4)]
    found = klog("dump", tmp_path / "new", "--output", "csv", "--topic", "orders").stdout.decode().splitlines()
    assert len(found) == 4


def test_records_that_name_none_go_into_those_that_are_there(klog: Klog, tmp_path: Path) -> None:
    assert directories(klog, tmp_path, [None, 2, None, None]) == [f"orders-{number}" for number in range(3)]


def test_one_without_a_name(klog: Klog, tmp_path: Path) -> None:
    assert directories(klog, tmp_path, [None, None]) == ["orders-0"]


def test_the_number_that_is_given_holds(klog: Klog, tmp_path: Path) -> None:
    assert directories(klog, tmp_path, [0, 1], "--partitions", "5") == [f"orders-{number}" for number in range(5)]
