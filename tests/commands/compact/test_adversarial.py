"""Keys chosen to make a compaction slow, large or endless: it ends, and keeps to its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from klog.commands.compact.compaction import PartitionOutcome
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.kernel import OffsetMap

from tests.commands.compact.compacting import planned, records
from tests.oracles.plain.encode import Record, batch

ENTRY_BYTES = 24
BATCH_RECORDS = 1000


def write_log(log_dir: Path, keys: Iterable[bytes], value: bytes = b"v", a_batch: int = BATCH_RECORDS) -> Path:
    """Write a partition with a record for each of *keys* in a closed segment; return its directory."""
    partition = log_dir / "topic-0"
    partition.mkdir(parents=True)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (log_dir / ".kafka_cleanshutdown").touch()
    end = 0
    with (partition / f"{0:020}.log").open("wb") as log:
        for some in batched(keys, a_batch):
            log.write(batch([Record(end + i, 1, key, value) for i, key in enumerate(some)]))
            end += len(some)
    (partition / f"{end:020}.log").write_bytes(batch([Record(end, 1, b"end", b"v")]))
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\ntopic 0 {end + 1}\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text(f"0\n1\ntopic 0 {end + 1}\n")
    return partition


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield *keys* in lists of *size*."""
    some: list[bytes] = []
    for key in keys:
        some.append(key)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


def compacted(log_dir: Path, *, map_memory: int, like_broker: bool = False) -> PartitionOutcome:
    """Plan a compaction of the one partition; return the outcome."""
    choices = CleanerOptions(map_memory=map_memory, like_broker=like_broker)
    _, (outcome,) = planned(log_dir, Disk(), {"cleanup.policy": "compact"}, choices)
    assert outcome.compacted is not None, (outcome.refused, outcome.failed)
    return outcome


def rounds_predicted(distinct: int, map_memory: int) -> int:
    """Return how many rounds keys need that all differ.

    A round ends at the first record that finds the map full: no round follows one that has just had room for all.
    """
    return max(-(-distinct // OffsetMap(map_memory).usable), 1)


@pytest.mark.parametrize("like_broker", [False, True])
@pytest.mark.parametrize("surplus", [0, 1])
def test_keys_that_all_differ_need_the_rounds_predicted(memory: Path, like_broker: bool, surplus: int) -> None:
    """An operator reckons how long it takes from the memory that can be spared."""
    map_memory = ENTRY_BYTES * 1000
    distinct = 4 * OffsetMap(map_memory).usable + surplus
    write_log(memory, (b"%d" % i for i in range(distinct)))
    done = compacted(memory, map_memory=map_memory, like_broker=like_broker).compacted
    assert done is not None
    assert len(done.rounds) == rounds_predicted(distinct, map_memory) == 4 + surplus
    assert done.cleaner_offset == distinct
    assert done.rounds[-1].counts.records_out == distinct


def test_keys_with_a_long_beginning_in_common_are_told_apart(memory: Path) -> None:
    """Digests take in all of a key: 64 KB in common neither merge keys nor crowd them."""
    beginning = b"tenant/" * 9362
    keys = [beginning + b"%03d" % (i % 100) for i in range(300)]
    write_log(memory, keys, a_batch=10)
    done = compacted(memory, map_memory=ENTRY_BYTES * 1000).compacted
    assert done is not None
    (one,) = done.rounds
    assert (one.keys, one.counts.records_in, one.counts.records_out) == (100, 300, 100)
    assert one.collisions < 100


def test_the_empty_key_is_a_key(memory: Path) -> None:
    """It is not the same as none: its last record stays, records without a key go."""
    write_log(memory, [b"", b"a", b"", b"a", b""])
    done = compacted(memory, map_memory=ENTRY_BYTES * 1000).compacted
    assert done is not None
    counts = done.rounds[0].counts
    assert (done.rounds[0].keys, counts.records_out, counts.superseded, counts.keyless) == (2, 2, 3, 0)


def test_keys_of_a_megabyte_pass(memory: Path) -> None:
    """They differ in their last byte; a map entry is as small for them as for any."""
    keys = [bytes(1 << 20) + bytes((i % 5,)) for i in range(20)]
    partition = write_log(memory, keys, a_batch=1)
    done = compacted(memory, map_memory=ENTRY_BYTES * 10).compacted
    assert done is not None
    assert (done.rounds[0].keys, done.rounds[0].counts.records_out) == (5, 5)
    assert len(records(partition)) == 21, "nothing changes before it is applied"


PEAK = """
import sys
from pathlib import Path
from tests.commands.compact.test_adversarial import compacted, peak_bytes
before = peak_bytes()
done = compacted(Path(sys.argv[1]), map_memory=16 << 20).compacted
print(len(done.rounds), done.rounds[-1].counts.records_out, peak_bytes() - before)
"""


def peak_bytes() -> int:
    """Return the largest resident size of this program so far; not of what it was forked from, as ru_maxrss tells."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.long
def test_ten_million_keys_pass_through_a_map_of_16_mib(memory: Path) -> None:
    """Memory stays bounded whatever the keys, and the time can be foretold from the number of rounds."""
    distinct = 10_000_000
    write_log(memory, (b"%d" % i for i in range(distinct)), b"")
    done = subprocess.run([sys.executable, "-c", PEAK, str(memory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rounds, left, peak = map(int, done.stdout.split())
    assert (rounds, left) == (rounds_predicted(distinct, 16 << 20), distinct)
    assert peak < (16 << 20) + 80_000_000
