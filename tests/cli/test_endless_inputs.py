"""Files that users name and that have no end: a bound for each line, for all of them, and a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, run_klog
from tests.support.measure import measured

PARTITION = str(FIXTURES / "modern" / "tx-0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("search", PARTITION, "--keys-from", "/dev/zero"), "/dev/zero, line 1: longer than 16777216 bytes"),
        (("dump", PARTITION, "--keys-from", "/dev/zero"), "/dev/zero, line 1: longer than 16777216 bytes"),
        (("lookup", PARTITION, "--timestamp", "--batch", "/dev/zero"), "/dev/zero, line 1: longer than 1024 bytes"),
        (("partition", "--partitions", "3", "--keys-from", "/dev/zero"), "/dev/zero, line 1: longer than 16 MiB"),
        (("replicas", "rescue", PARTITION, "--plan", "/dev/zero", "--to", "-"), "more than 67108864 bytes"),
        (("replicas", "simulate", "/dev/zero"), "larger than 1048576 bytes"),
        (("write", "/dev/zero", "--to", "new", "--topic", "t"), "not a file"),
        (("doctor", str(FIXTURES / "modern"), "--server-properties", "/dev/zero"), "a character device"),
        (("space", PARTITION, "--server-properties", "/dev/zero"), "a character device"),
        (("apply", "/dev/zero"), "expected a plan's file"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_file_without_an_end_is_refused(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """`--keys-from /dev/zero` and `lookup --batch /dev/zero` took all memory."""
    ran = measured([sys.executable, "-m", "klog_cli.app", *words], tmp_path, seconds=60)
    assert ran.exit_code == 16, ran
    assert said in ran.stderr
    assert ran.rss < 400 << 20


def test_more_keys_than_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from klog_cli.commands import dump

    keys = tmp_path / "keys"
    keys.write_text("".join(f"{number}\n" for number in range(100)))
    assert run_klog("search", "-o", "jsonl", PARTITION, "--keys-from", keys).exit_code == 4
    monkeypatch.setattr(dump, "_MOST_KEYS_BYTES", 5000)
    ran = run_klog("search", "-o", "jsonl", PARTITION, "--keys-from", keys)
    assert ran.exit_code == 16
    assert b"more keys than fit into" in ran.stderr


def test_lines_end_as_they_did(tmp_path: Path) -> None:
    """With LF, CR LF, or nothing behind the last one."""
    numbers = tmp_path / "numbers"
    numbers.write_bytes(b"0\r\n\n 5 \n7")
    ran = run_klog("lookup", PARTITION, "--batch", numbers)
    assert [line.split()[0] for line in ran.stdout.splitlines()] == [b"0", b"5", b"7"]
    numbers.write_bytes(b"0\nfive\n")
    assert b"line 2: 'five' is not a number" in run_klog("lookup", PARTITION, "--batch", numbers).stderr
