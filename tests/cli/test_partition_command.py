"""`klog partition`: keys from the command line and from files, as text and as JSON lines."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.partitioners import MOST_KEY_BYTES, NAMES, PARTITIONERS
from klog.kernel import KEY_FORMS, KeyLines

from tests.conftest import Ran, run_klog
from tests.support.examples import examples
from tests.support.measure import measured

Klog = Callable[..., Ran]


def expected(key: bytes, partitions: int) -> dict[str, object]:
    """Return a key's line as the table of partitioners has it."""
    try:
        shown: dict[str, object] = {"key": key.decode()}
    except UnicodeDecodeError:
        shown = {"key_base64": base64.b64encode(key).decode()}
    found = {one.name: one.partition(key, partitions) for one in PARTITIONERS}
    return {**shown, "partitions": partitions, "partition": found}


def objects(done: Ran) -> list[dict[str, object]]:
    assert done.exit_code == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def from_file(path: Path, content: bytes, *more: str) -> Ran:
    path.write_bytes(content)
    return run_klog("partition", "--keys-from", path, "--partitions", "12", "--output", "jsonl", *more)


def test_a_line_of_json_has_the_key_the_partitions_and_a_number_for_each_partitioner() -> None:
    """The members are in the order of the table: scripts and people compare lines."""
    done = run_klog("partition", "user-42", "--partitions", "12", "--output", "jsonl")
    assert done.stdout == (
        b'{"key":"user-42","partitions":12,"partition":{"java":4,"librdkafka":7,"consistent":7,"fnv1a":3,'
        b'"fnv1a-mask":3,"fnv1a-unsigned":3,"murmur2-unsigned":4,"murmur2-abs":4}}\n'
    )


@given(keys=st.lists(st.binary(max_size=40).filter(lambda key: b"\n" not in key and not key.endswith(b"\r"))))
@examples(50)
def test_lines_of_a_file_are_keys(keys: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever bytes they have; the last one without a line's end."""
    path = tmp_path_factory.getbasetemp() / "keys-of-lines"
    content = b"\n".join(keys)
    if keys and not keys[-1]:
        content += b"\n"
    assert objects(from_file(path, content)) == [expected(key, 12) for key in keys]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_both_ends_of_lines_are_taken_and_the_last_line_may_have_none(tmp_path: Path, end: bytes, last: bool) -> None:
    """A carriage return in front of a line feed belongs to the line's end, one elsewhere to the key."""
    keys = [b"a", b"", b"b\rc", b"d"]
    content = end.join(keys) + end * last
    assert objects(from_file(tmp_path / "keys", content)) == [expected(key, 12) for key in keys]
    done = run_klog("partition", "--keys-from", tmp_path / "keys", "--partitions", "12", "--partitioner", "java")
    assert done.stdout.splitlines() == [b"%d" % expected(key, 12)["partition"]["java"] for key in keys]  # type: ignore[index]


def test_lines_go_over_the_ends_of_what_is_read_at_a_time(tmp_path: Path) -> None:
    """Files are read a megabyte at a time, and written so, too."""
    chance = random.Random(3)
    keys = [b"k" * chance.randrange(1, 60) + b"%d" % i for i in range(90_000)]
    keys[500] = b"long " * 300_000
    rows = objects(from_file(tmp_path / "keys", b"\r\n".join(keys)))
    assert len(rows) == len(keys)
    for i in (*range(0, len(keys), 997), 499, 500, 501, len(keys) - 1):
        assert rows[i] == expected(keys[i], 12)


@pytest.mark.parametrize("form", KEY_FORMS)
def test_a_file_in_each_form(tmp_path: Path, form: str) -> None:
    numbers = [0, 1, -1, 2**31 - 1, -(2**31)]
    written = {
        "text": [b"0", b"x"],
        "hex": [b"00ff", b""],
        "base64": [b"AP8=", b""],
        "int32": [b"%d" % one for one in numbers],
        "int64": [b"%d" % one for one in [*numbers, 2**63 - 1, -(2**63)]],
    }[form]
    keys = {
        "text": [b"0", b"x"],
        "hex": [b"\0\xff", b""],
        "base64": [b"\0\xff", b""],
        "int32": [one.to_bytes(4, "big", signed=True) for one in numbers],
        "int64": [one.to_bytes(8, "big", signed=True) for one in [*numbers, 2**63 - 1, -(2**63)]],
    }[form]
    rows = objects(from_file(tmp_path / "keys", b"\n".join(written) + b"\n", "--as", form))
    assert rows == [expected(key, 12) for key in keys]
    given = run_klog(
        "partition", "--partitions", "12", "--output", "jsonl", "--as", form, "--", *map(bytes.decode, written)
    )
    assert objects(given) == rows


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_bad_line_is_named_and_those_before_it_are_answered(tmp_path: Path, output: str) -> None:
    """A number that does not fit would name a partition, and the wrong one."""
    path = tmp_path / "numbers"
    path.write_bytes(b"1\n2\n2147483648\n4\n")
    arguments = ("--keys-from", path, "--partitions", "7", "--as", "int32", "--partitioner", "java", "--output", output)
    done = run_klog("partition", *arguments)
    assert (done.exit_code, len(done.stdout.splitlines())) == (16, 2)
    wanted = f"klog: {path}, line 3: '2147483648' is no int32: expected a number from -2147483648 to 2147483647\n"
    assert done.stderr.decode() == wanted


@pytest.mark.parametrize("output", ["text", "jsonl"])
def test_a_line_longer_than_any_key_is_refused(tmp_path: Path, output: str) -> None:
    """A file without line ends must not become as large in memory."""
    path = tmp_path / "keys"
    arguments = ("--keys-from", path, "--partitions", "7", "--partitioner", "java", "--output", output)
    path.write_bytes(b"a\n" + b"x" * MOST_KEY_BYTES + b"\nb\n")
    assert len(run_klog("partition", *arguments).stdout.splitlines()) == 3
    for end in (b"", b"\nb\n"):
        path.write_bytes(b"a\n" + b"x" * (MOST_KEY_BYTES + 1) + end)
        done = run_klog("partition", *arguments)
        assert (done.exit_code, len(done.stdout.splitlines())) == (16, 1)
        assert done.stderr.decode() == f"klog: {path}, line 2: longer than 16 MiB\n"


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A topic's keys may be more than fits."""
    path = tmp_path / "keys"
    path.write_bytes(b"".join(b"user-%d\n" % i for i in range(2_000_000)))
    command = [sys.executable, "-m", "klog_cli.app", "partition", "--keys-from", str(path), "--partitions", "7"]
    done = measured([*command, "--output", "jsonl"], tmp_path)
    assert (done.exit_code, done.rss < 64 << 20) == (0, True), done.rss


def test_stdin_is_a_file_of_keys(klog_process: Klog) -> None:
    done = klog_process("partition", "--keys-from", "-", "--partitions", "12", "--output", "jsonl", stdin=b"a\nb")
    assert objects(done) == [expected(b"a", 12), expected(b"b", 12)]


def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"user\n" * 500_000)
    command = f"{sys.executable} -m klog_cli.app partition --keys-from {path} --partitions 7 --output jsonl | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=True)
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")


def test_text_has_a_column_for_each_partitioner_and_for_one_only_the_number() -> None:
    done = run_klog("partition", "a", "", "tab\there", "--null", "--partitions", "12")
    head, *rows = [line.split() for line in done.stdout.decode().splitlines()]
    assert head == [*NAMES, "key"]
    assert rows[0] == ["4", "3", "3", "0", "8", "4", "0", "4", "a"]
    assert rows[1] == ["9", "random", "0", "3", "5", "1", "9", "9", "(empty)"]
    assert rows[3][:3] + rows[3][-1:] == ["random", "random", "0", "(null)"]
    done = run_klog("partition", "a", "", "--null", "--partitions", "12", "--partitioner", "librdkafka")
    assert done.stdout == b"3\nrandom\nrandom\n"


def test_a_null_key_is_null_in_json() -> None:
    (row,) = objects(run_klog("partition", "--null", "--partitions", "12", "--output", "jsonl"))
    nulls = dict.fromkeys(NAMES) | {"consistent": 0, "fnv1a": 3}
    assert row == {"key": None, "partitions": 12, "partition": nulls}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a",), "--partitions"),
        (("a", "--partitions", "0"), "--partitions"),
        (("a", "--partitions", "-3"), "--partitions"),
        (("a", "--partitions", "2147483648"), "--partitions"),
        (("--partitions", "3"), "no key: give KEY, --keys-from FILE or --null"),
        (("a", "--partitions", "3", "--partitioner", "jaav"), "did you mean java?"),
        (("a", "--partitions", "3", "--as", "int16"), "did you mean int"),
        (("a", "--partitions", "3", "--output", "jso"), "did you mean json or jsonl?"),
        (("2147483648", "--partitions", "3", "--as", "int32"), "KEY: '2147483648' is no int32"),
        (("1", "x", "--partitions", "3", "--as", "int64", "--output", "jsonl"), "KEY: 'x' is no int64"),
        (("abc", "--partitions", "3", "--as", "hex"), "KEY: 'abc' is no hex"),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments: tuple[str, ...], said: str) -> None:
    done = run_klog("partition", *arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr.decode()


def test_a_file_that_is_not_there_is_an_error() -> None:
    done = run_klog("partition", "--keys-from", "/nowhere", "--partitions", "3")
    assert (done.exit_code, done.stdout) == (8, b"")


@given(
    content=st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xff", b"key", b'"\\\x01', b"x" * 30])),
    room=st.integers(200, 900),
    step=st.integers(1, 40),
)
@examples(100)
def test_lines_come_out_alike_however_small_the_pieces_are(content: list[bytes], room: int, step: int) -> None:
    """The kernel stops at an incomplete line or without room, and continues from there."""
    data = b"".join(content)
    members = [
        (f'{"," * bool(i)}"{one.name}":'.encode(), one.rule, one.partition(b"", 5))
        for i, one in enumerate(PARTITIONERS)
    ]
    lines = KeyLines(5, list(members), 0, room)
    found, at, seen = bytearray(), 0, 0
    while seen < len(data) or at < seen:
        seen = min(seen + step, len(data))
        while True:
            at += lines.take(data[at:seen], 0, seen == len(data))
            if not len(lines.output()):
                break
            found += lines.output()
            lines.flushed()
    keys = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if not keys[-1] and not data.endswith(b"\r"):
        keys.pop()
    assert [json.loads(line) for line in found.splitlines()] == [expected(key, 5) for key in keys]
    assert lines.lines == len(keys)
