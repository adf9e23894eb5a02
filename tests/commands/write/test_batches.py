"""The partitions of records, and the batches that they share."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from klog.base.progress import Silence
from klog.commands.write.write import WriteInput, write_new
from klog.commands.write.write_destination import WriteOptions
from klog.data_dir.disk.disk_changes import Disk

from tests.commands.write.sources import SOURCE, lines, topic
from tests.conftest import Ran
from tests.support.power import MODELS, HastyDisk, PowerCutDisk, PowerCutError
from tests.support.samples import some_or_all

Klog = Callable[..., Ran]


def write(klog: Klog, folder: Path, records: list[dict[str, Any]], *options: str) -> Path:
    """Write records into a new log dir; return it."""
    file, to = folder / "in.jsonl", folder / "out"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    done = klog("write", file, "--to", to, "--topic", "t", *options)
    assert done.exit_code == 0, done.stderr
    return to


# partitions


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("java", "java"), ("java", "murmur2_random"), ("java", "murmur2"), ("crc", "consistent_random"),
        ("crc", "consistent"), ("fnv", "fnv1a_random"), ("fnv", "fnv1a"),
    ],
)  # fmt: skip
def test_keys_go_where_clients_send_them(
    word: str, name: str, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """librdkafka did the same in the corpus, over 12, 7 and 5 partitions."""
    found = topic(word)
    sources = found.directories(image(SOURCE) / "data")
    file = tmp_path / "records.jsonl"
    assert klog("dump", *sources, "--output", "jsonl", "--to", file).exit_code == 0
    count = str(found.count)
    done = klog("write", file, "--to", tmp_path / "out", "--partitions", count, "--repartition", "--partitioner", name)
    assert done.exit_code == 0, done.stderr
    ours = found.directories(tmp_path / "out")
    for source, mine in zip(sources, ours, strict=True):
        assert keys(lines(klog, [mine]), name) == keys(lines(klog, [source]), name)


def keys(records: list[dict[str, Any]], name: str) -> Counter[str]:
    """Count keys; for some partitioners an empty one goes anywhere."""
    found = Counter(one["key"] if "key" in one else f"base64 {one['key_base64']}" for one in records)
    if name == "consistent_random":
        del found[""]
    return found


def test_records_without_a_key_spread_as_the_partitioner_says(klog: Klog, tmp_path: Path) -> None:
    """In turn; at random; to one partition until a batch's bytes are there; the same for the same seed."""
    records = [{"key": None, "value": "x" * 100} for _ in range(600)]
    spread: dict[str, list[int]] = {}
    for name in ("round_robin", "random", "java", "java again", "consistent"):
        folder = tmp_path / name.replace(" ", "")
        folder.mkdir()
        to = write(klog, folder, records, "--partitions", "4", "--partitioner", name.split()[0], "--batch-size", "2000")
        spread[name] = [len(lines(klog, [to / f"t-{number}"])) for number in range(4)]
    assert spread["round_robin"] == [150] * 4
    assert min(spread["random"]) > 100
    assert spread["consistent"] == [600, 0, 0, 0]
    assert spread["java"] == spread["java again"]
    runs = {count % 19 for count in spread["java"]}
    assert sum(spread["java"]) == 600
    assert len(runs) <= 2, "whole runs of 2000 bytes, and the last one"


# batches


def test_a_batch_is_closed_when_the_next_record_does_not_fit(klog: Klog, tmp_path: Path) -> None:
    """And by nothing else: each is within the size, and the first record of the next one would have broken it."""
    records = [{"key": f"k{i}", "value": "x" * (i * 37 % 300), "timestamp": 1000 + i % 7} for i in range(500)]
    to = write(klog, tmp_path, records, "--batch-size", "1000")
    batches = lines(klog, [to / "t-0"], "--batches")
    rows = {one["offset"]: one for one in lines(klog, [to / "t-0"])}
    assert sum(one["records"] for one in batches) == 500
    assert all(one["size"] <= 1000 for one in batches)
    for one, following in pairwise(batches):
        row = rows[following["base_offset"]]
        assert one["size"] + len(row["key"]) + len(row["value"]) + 7 > 1000 - 4


def test_a_batch_spans_no_more_than_linger(klog: Klog, tmp_path: Path) -> None:
    """The records' own times count, from its first one."""
    times = [0, 10, 50, 51, 52, 101, 102, 200, 150, 149]
    to = write(klog, tmp_path, [{"key": "k", "value": "v", "timestamp": one} for one in times], "--linger", "50ms")
    assert [one["records"] for one in lines(klog, [to / "t-0"], "--batches")] == [3, 3, 1, 2, 1]


def test_idempotent_records_have_sequences(klog: Klog, tmp_path: Path) -> None:
    """One producer a partition, sequences without a gap: nothing to find fault with."""
    records = [{"key": f"k{i}", "value": "v" * 50} for i in range(300)]
    to = write(klog, tmp_path, records, "--partitions", "3", "--idempotent", "--batch-size", "500")
    ids = set()
    for number in range(3):
        rows = lines(klog, [to / f"t-{number}"])
        ids |= {one["producer_id"] for one in rows}
        assert [one["sequence"] for one in rows] == list(range(len(rows)))
    assert len(ids) == 3
    assert min(ids) > 1 << 62
    assert klog("verify", "--deep", to).exit_code == 0


def test_append_time_is_now(klog: Klog, tmp_path: Path) -> None:
    """For all batches; and without a timestamp, a record is of now."""
    to = write(
        klog, tmp_path, [{"key": "k", "value": "v", "timestamp": 5}], "--timestamp-type", "LogAppendTime", "--now", "77"
    )
    assert [(one["timestamp"], one["timestamp_type"]) for one in lines(klog, [to / "t-0"])] == [(77, "LogAppendTime")]
    (tmp_path / "two").mkdir()
    to = write(klog, tmp_path / "two", [{"key": "k", "value": "v"}], "--now", "78")
    assert [one["timestamp"] for one in lines(klog, [to / "t-0"])] == [78]


@pytest.mark.parametrize(
    "options",
    [
        ("--batches", "keep", "--linger", "5"), ("--codec", "brotli"), ("--level", "3"),
        ("--codec", "zstd", "--level", "40"),
        ("--set", "min.insync.replicas=2"), ("--partitioner", "best"), ("--leader-epoch", "x"), ("--apply",),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(options: tuple[str, ...], klog: Klog, tmp_path: Path) -> None:
    """Before anything is read."""
    (tmp_path / "in.jsonl").touch()
    done = klog("write", tmp_path / "in.jsonl", "--to", tmp_path / "out", *options)
    assert (done.exit_code, (tmp_path / "out").exists()) == (16, False), done


def test_options_of_records_do_not_go_with_a_log(klog: Klog, tmp_path: Path) -> None:
    """Its batches are taken as they are."""
    (tmp_path / "t-0").mkdir()
    done = klog("write", tmp_path / "t-0", "--to", tmp_path / "out", "--codec", "zstd")
    assert done.exit_code == 16
    assert b"--codec: batches of a log are copied unchanged" in done.stderr


def test_a_new_log_dir_is_there_whole_or_not_at_all(klog: Klog, tmp_path: Path) -> None:
    """Killed in the middle: nothing under its name, and the next run clears the rest."""
    code = (
        "import os, signal, sys\n"
        "from klog.data_dir.disk.disk_changes import Disk\n"
        "from klog_cli import app\n"
        "Disk.rename = lambda self, *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.argv = ['klog', *sys.argv[1:]]\n"
        "app.main()\n"
    )
    file = tmp_path / "in.jsonl"
    file.write_text('{"key":"k","value":"v"}\n')
    words = ("write", str(file), "--to", str(tmp_path / "out"), "--topic", "t")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    died = subprocess.run([sys.executable, "-c", code, *words], env=environment, check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", ".out.klog-write"}
    done = klog(*words)
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out"}
    assert klog("verify", "--deep", tmp_path / "out").exit_code == 0


# the request


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nosuch.jsonl",), "nosuch.jsonl: No such file or directory; expected"),
        (("",), "'': No such file or directory"),
        (("in.txt",), "its name does not show its form; --input-format jsonl|csv|parquet|log"),
        (("in.jsonl", "./in.jsonl"), "given twice, and its records would be written twice"),
        (("-", "-"), "-: given twice"),
        (("pipe.jsonl",), "not a file; - reads lines from stdin"),
        (("pipe.csv",), "not a file; - reads lines from stdin"),
        (("pipe.parquet",), "not a file; - reads lines from stdin"),
        (("/dev/zero", "--input-format", "jsonl"), "not a file"),
        (("/dev/zero", "--input-format", "parquet"), "not a file"),
        (("parts.parquet",), "a directory; name the files in it"),
        (("parts.parquet", "--input-format", "jsonl"), "a directory; name the files in it"),
        (("in.log",), "a segment; name its partition directory"),
        (("in.jsonl", "--topic", ""), "no name of a topic"),
        (("in.jsonl", "--topic", "a/b"), "--topic a/b: no name of a topic"),
        (("in.jsonl", "--topic-id", "xyz"), "--topic-id xyz: expected 16 bytes as 22 letters"),
        (("in.jsonl", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAA"), "expected 16 bytes"),
        (("-", "--input-format", "parquet"), "not from stdin"),
        (("in.jsonl", "--producers", "shft"), "did you mean shift?"),
    ],
)
def test_typical_mistakes_are_told_in_one_line(
    words: tuple[str, ...], why: str, klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do instead; nothing waits, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    for name in ("in.jsonl", "in.txt", "in.log"):
        (tmp_path / name).write_text('{"topic":"t","key":"k","value":"v"}\n')
    for name in ("pipe.jsonl", "pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "parts.parquet").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = klog("write", *words, "--to", "out")
    said = done.stderr.decode()
    assert (done.exit_code, said.count("\n"), why in said) == (16, 1, True), said
    assert sorted(tmp_path.rglob("*")) == before


class _Deadly(Disk):
    """A disk whose process is killed at one of its calls: at the call *left* from now."""

    left = 0


def _deadly(name: str) -> Callable[..., Any]:
    real = getattr(Disk, name)

    def call(self: _Deadly, *arguments: Any, **named: Any) -> Any:
        _Deadly.left -= 1
        if _Deadly.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments, **named)

    return call


CALLS = ("create", "open_lock", "write", "close", "sync", "make_directory", "remove_directory", "rename", "unlink")
for _name in CALLS:
    setattr(_Deadly, _name, _deadly(_name))


@some_or_all
def test_a_new_log_dir_is_whole_or_not_there_whenever_it_is_killed(every: int, klog: Klog, tmp_path: Path) -> None:
    """At any call: the next run clears the rest and writes it, and it is the same to the last byte."""
    file, out = tmp_path / "in.jsonl", tmp_path / "there" / "out"
    rows = [{"topic": "t", "key": f"k{i}", "value": "v" * 50, "partition": i % 2, "timestamp": i} for i in range(60)]
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    options = WriteOptions(1_900_000_000_000, partitions=2, batch_bytes=400, config={"segment.bytes": "1500"})
    inputs = [WriteInput(str(file), "jsonl")]
    write_new(inputs, str(tmp_path / "whole"), options, Silence(), Disk())
    whole = logs(tmp_path / "whole")
    outcomes = Counter[int]()
    for at in range(0, 1000, every):
        child = os.fork()
        if child == 0:
            _Deadly.left = at
            try:
                write_new(inputs, str(out), options, Silence(), _Deadly())
            finally:
                os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        outcomes[status] += 1
        if out.exists():
            assert logs(out) == whole, at
            shutil.rmtree(out)
        else:
            assert status == -signal.SIGKILL
        write_new(inputs, str(out), options, Silence(), Disk())
        assert logs(out) == whole, at
        assert [path.name for path in out.parent.iterdir()] == ["out"]
        shutil.rmtree(out.parent)
        if status == 0:
            break
    assert outcomes[0] == 1
    assert outcomes[-signal.SIGKILL] > 60 // every


@some_or_all
def test_a_new_log_dir_is_whole_or_not_there_after_a_power_cut(every: int, tmp_path: Path) -> None:
    """Before any call, under any model of a disk: an existing name means a complete log dir."""
    file, root = tmp_path / "in.jsonl", tmp_path / "cut"
    out = root / "there" / "out"
    rows = [{"topic": "t", "key": f"k{i}", "value": "v" * 50, "partition": i % 2, "timestamp": i} for i in range(60)]
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    options = WriteOptions(1_900_000_000_000, partitions=2, batch_bytes=400, config={"segment.bytes": "1500"})
    inputs = [WriteInput(str(file), "jsonl")]
    write_new(inputs, str(tmp_path / "whole"), options, Silence(), Disk())
    whole, outcomes = logs(tmp_path / "whole"), Counter[bool]()
    for model in MODELS:
        for at in range(0, 1000, every):
            root.mkdir()
            disk, is_cut = PowerCutDisk(root, at), False
            try:
                write_new(inputs, str(out), options, Silence(), disk)
            except PowerCutError:
                is_cut = True
            disk.lose_power(model, Random(f"{model} {at}"))
            is_there = out.exists()
            outcomes[is_there] += 1
            assert is_there or is_cut, "what was said to be written is on the disk"
            if not is_there:
                write_new(inputs, str(out), options, Silence(), HastyDisk())
            assert logs(out) == whole, (model, at)
            assert {"meta.properties", "recovery-point-offset-checkpoint"} <= {path.name for path in out.iterdir()}
            assert [path.name for path in out.parent.iterdir()] == ["out"]
            shutil.rmtree(root)
            if not is_cut:
                break
    assert outcomes[True] >= len(MODELS)
    assert outcomes[False] > 60 // every


def logs(folder: Path) -> dict[str, bytes]:
    """Return the content of the partitions, without the ids of their topics."""
    found = (path for path in folder.glob("t-*/*") if path.name != "partition.metadata")
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(found)}
