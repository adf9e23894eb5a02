"""Every command over every log that unpacks to gigabytes: an end within a minute of processor time and 1 GiB."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from klog_cli import command_catalog
from pyarrow import parquet

from tests.support import counts
from tests.support.bomb_dirs import BOMBS, batch_with_value, bombs
from tests.support.measure import measured

MEMORY_BYTES = 1 << 30
SECONDS = 60
ENDS = (0, 4, 8, 12)
"""Clean, problems left, could not do it; never 1, never killed."""
RUNS: dict[str, tuple[str, ...]] = {
    "adopt": ("P --to=E",),
    "assign": ("--check D",),
    "audit headers": ("D --internal",),
    "audit misrouted": ("D --internal", "D --internal --deep"),
    "bytes": ("P --offset=0", "L", "L --output=json", "L --position=0"),
    "compact": ("D --policy=compact --all", "D --policy=compact --all --to=N"),
    "describe": ("D", "P"),
    "doctor": ("D",),
    "dump": (
        "P",
        "P --print-data-log",
        "P --offsets-decoder",
        "P --transaction-log-decoder",
        "P --cluster-metadata-decoder",
        "P --share-group-state-decoder",
        "P --remote-log-metadata-decoder",
        "P --output=jsonl",
        "P --output=csv",
        "P --output=parquet --to=N",
        "P --batches --output=jsonl",
        "P --isolation=read_committed --output=jsonl",
    ),
    "export": ("D --output=jsonl --to=N", "D --output=parquet --to=N"),
    "fetch": ("P --offset=0",),
    "groups": ("D", "D --output=json", "D --at-time=2026-01-01T00:00:00Z"),
    "keys check": ("D",),
    "schemas check": ("D",),
    "schemas export": ("D --to=N",),
    "schemas list": ("D",),
    "schemas show": ("D --id=1",),
    "lookup": ("P --offset=0", "P --timestamp=1750000000000"),
    "metadata compare": ("D E",),
    "metadata history": ("D --quorum",),
    "metadata plan": ("D --only-voter=1",),
    "metadata show": ("D", "D --output=json"),
    "plans": ("D",),
    "recover": ("D", "D --salvage", "D --like-broker", "D --mark-clean"),
    "remote ls": ("D",),
    "remote verify": ("D --remote D --remote-layout local",),
    "remote fetch": ("D --remote D --remote-layout local --to=N",),
    "remote orphans": ("D --remote D --remote-layout local",),
    "remote attach": ("--to=D --remote D --remote-layout local",),
    "replicas diff": ("D E",),
    "replicas plan": ("D E",),
    "replicas rescue": ("D E --to=N",),
    "report": ("D --to=N",),
    "records": ("D", "D --head", "D --full --pretty -n 1000000", "D -o jsonl"),
    "search": ("D", "D --regex=zz", "D --header=h"),
    "space": ("D", "D --what-if=compression", "D --what-if=compact", "D --keys"),
    "stats": ("D",),
    "timeline": ("D",),
    "transactions": ("D",),
    "truncate": ("P --to-offset=0",),
    "verify": ("D", "D --deep"),
    "write": ("P --to=N",),
}
"""The runs, by command: D the log dir, E a copy of it, P the partition, L its log, N a missing path."""
ELSEWHERE = {
    "apply": "reads a plan",
    "undo": "reads a backup",
    "follow": "reads a cluster",
    "explain": "reads nothing",
    "browse": "needs a terminal; its screens read as describe, dump and records do, or run other commands",
    "completion": "reads names of directories",
    "partition": "reads keys, see tests/cluster/partitioning",
    "replicas simulate": "reads a script",
    "serve": "runs until it is stopped; what it reads at its start is that of groups, transactions and metadata show",
    "spark": "runs the jobs of verify, audit, stats, search, export and compact in processes of Spark's",
}
FAST = {
    ("headers", "zstd"): ("search", "lookup", "bytes"),
    ("topics of a transaction", "zstd"): ("transactions", "timeline", "groups"),
    ("topics of a transaction", "gzip"): ("transactions", "dump"),
    ("tags of a topic", "zstd"): ("space", "metadata show", "doctor"),
    ("members of a group", "lz4"): ("groups", "report", "bytes"),
    ("tiny records of a coordinator", "snappy"): ("groups",),
    ("a large value", "zstd"): ("search", "bytes"),
}
"""The sample of the usual run."""


def test_every_command_is_run_or_said_to_be_run_elsewhere() -> None:
    """A new command fails until somebody has added it."""
    leaves = {one.name for one in command_catalog.read().walk() if not one.children and one.words}
    spark = {name for name in leaves if name.startswith("spark ")}
    assert leaves - spark == set(RUNS) | set(ELSEWHERE) - {"spark"}
    assert not set(RUNS) & set(ELSEWHERE)


_LIMITED = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_BYTES}, {MEMORY_BYTES}))
os.execv(sys.argv[1], sys.argv[1:])
"""


def cases() -> Iterator[object]:
    for name, codec in bombs():
        for command in RUNS:
            marks = [] if command in FAST.get((name, codec), ()) else [pytest.mark.long]
            yield pytest.param(name, codec, command, marks=marks, id=f"{command}-{name}-{codec}".replace(" ", "_"))


@cache
def _folder() -> Path:
    return Path(os.environ.get("TMPDIR", "/tmp"), f"klog-bombs-{os.getpid()}")


@pytest.fixture(scope="module", autouse=True)
def _made() -> Iterator[None]:
    yield
    shutil.rmtree(_folder(), ignore_errors=True)


def log_dir(name: str, codec: str) -> Path:
    """Return a log dir with this bomb, made once, and a copy of another broker's beside it."""
    folder = _folder() / f"{name}-{codec}".replace(" ", "-")
    if not folder.exists():
        BOMBS[name].write(folder / "data", codec)
        shutil.copytree(folder / "data", folder / "copy")
        meta = folder / "copy" / "meta.properties"
        meta.write_text(meta.read_text().replace("node.id=1", "node.id=2").replace("AAAQ", "AAAg"))
    return folder


@pytest.mark.parametrize(("name", "codec", "command"), list(cases()))
def test_a_command_keeps_to_its_bounds(name: str, codec: str, command: str, tmp_path: Path) -> None:
    """It ends by itself, with an exit code of its own, and no traceback."""
    folder = log_dir(name, codec)
    places = {"D": folder / "data", "E": folder / "copy", "P": folder / "data" / BOMBS[name].directory}
    places["L"] = places["P"] / f"{0:020d}.log"
    for number, line in enumerate(RUNS[command]):
        places["N"] = tmp_path / f"new-{number}"
        words = [_filled(word, places) for word in line.split()]
        code, peak, said = run([*command.split(), *words])
        assert b"Traceback" not in said, (line, said[-2000:])
        assert code in ENDS or (code == 16 and b"klog: " in said), (line, code, said[-500:])
        counts.count("runs over logs that want to become gigabytes")
        counts.most("MiB of memory at most, over logs that want to become gigabytes", peak >> 20)
        shutil.rmtree(places["N"], ignore_errors=True)


def _filled(word: str, places: dict[str, Path]) -> str:
    option, equals, value = word.rpartition("=")
    return f"{option}{equals}{places.get(value, value)}"


def run(words: list[str]) -> tuple[int, int, bytes]:
    """Run klog within the bounds; return its exit code, its peak in bytes, and its output."""
    command = [sys.executable, "-S", "-c", _LIMITED, sys.executable, "-m", "klog_cli.app"]
    with tempfile.TemporaryDirectory() as folder:
        ran = measured([*command, *words], Path(folder), seconds=SECONDS)
    return ran.exit_code, ran.rss, ran.stderr.encode()


@pytest.mark.parametrize(
    ("name", "codec", "words"),
    [
        ("topics of a transaction", "zstd", "transactions D"),
        ("members of a group", "zstd", "groups D"),
        ("tags of a topic", "zstd", "metadata show D"),
        ("tags of a topic", "zstd", "space D"),
        ("replicas of a partition", "zstd", "metadata show D"),
        ("topics of a transaction", "zstd", "dump P --transaction-log-decoder"),
        ("topics of a transaction", "zstd", "timeline D"),
        pytest.param("tiny records", "zstd", "search D", marks=pytest.mark.long),
    ],
)
def test_what_is_left_out_is_said(name: str, codec: str, words: str) -> None:
    """A sentence, and exit code 4."""
    folder = log_dir(name, codec)
    places = {"D": folder / "data", "P": folder / "data" / BOMBS[name].directory}
    code, _, said = run([_filled(word, places) for word in words.split()])
    assert code == 4, said
    reasons = (b"elements", b"its few bytes", b"cannot be decoded", b"records in one batch: the rest is left out")
    assert any(reason in said for reason in reasons)


@pytest.mark.parametrize(
    ("name", "codec", "words", "offsets"),
    [
        ("headers", "zstd", "dump P --output=parquet --to=N", [0, 2]),
        ("headers", "zstd", "export D --output=parquet --to=N", [0, 2]),
        pytest.param("headers", "gzip", "dump P --output=parquet --to=N", [0, 2], marks=pytest.mark.long),
        pytest.param("headers", "lz4", "export D --output=parquet --to=N", [0, 2], marks=pytest.mark.long),
        ("headers of many records", "zstd", "export D --output=parquet --to=N", list(range(60))),
    ],
)
def test_columns_leave_out_only_the_record_that_has_no_room(
    name: str, codec: str, words: str, offsets: list[int], tmp_path: Path
) -> None:
    """A record of sixty million headers is named, and its neighbours are there; columns take a million headers."""
    folder = log_dir(name, codec)
    places = {"D": folder / "data", "P": folder / "data" / BOMBS[name].directory, "N": tmp_path / "new"}
    code, _, said = run([_filled(word, places) for word in words.split()])
    files = sorted(places["N"].rglob("*.parquet")) or [places["N"]]
    assert [
        at for file in files for at in parquet.read_table(file, columns=["offset"])["offset"].to_pylist()
    ] == offsets
    is_left_out = b"(offset 1): bad record: the record has 60000000 headers" in said
    assert (code, is_left_out) == ((4, True) if name == "headers" else (0, False)), said


def test_a_rescue_names_the_record_whose_line_is_too_large(tmp_path: Path) -> None:
    """The record after it is written."""
    folder = log_dir("headers", "zstd")
    leader = tmp_path / "copy"
    shutil.copytree(folder / "copy", leader)
    log = leader / BOMBS["headers"].directory / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[: 12 + int.from_bytes(log.read_bytes()[8:12], "big")])
    words = ["replicas", "rescue", str(folder / "data"), str(leader), "--if-leads=2", f"--to={tmp_path / 'new'}"]
    code, _, said = run(words)
    assert (code, b"headers-0 (offset 1): the record's line is too large" in said) == (4, True), said
    assert [line[:11] for line in (tmp_path / "new").read_bytes().splitlines()] == [b'{"offset":2']


def test_a_rescue_names_the_batch_that_it_cannot_unpack(tmp_path: Path) -> None:
    """It has 130 MiB, more than klog takes; the record may be lost, and is not in the output."""
    folder = log_dir("a large value", "zstd")
    other = tmp_path / "other"
    shutil.copytree(folder / "copy", other)
    log = other / BOMBS["a large value"].directory / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + batch_with_value("zstd", 130, 1))
    words = ["replicas", "rescue", str(folder / "data"), str(other), "--if-leads=1", f"--to={tmp_path / 'new'}"]
    code, _, said = run(words)
    assert (code, b"value-0: node 2: the batch at offset 1 cannot be read" in said) == (4, True), said
