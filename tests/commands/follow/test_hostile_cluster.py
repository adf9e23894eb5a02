"""A cluster that lies to klog follow: no crash, nothing outside of the copy, and nothing in it that no log may hold."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from klog.formats.structs.schema import Data

from tests.commands.follow.client.fake_broker import FakeBroker, speaking
from tests.conftest import FIXTURES, Ran, run_klog
from tests.support.mutate import whole_batches
from tests.support.samples import sampled

IDENTITY = "AAAAAAAAAAAAAAAAAAAAAQ"
LOG = (FIXTURES / "modern" / "plain-1" / f"{0:020}.log").read_bytes()


def batches(count: int) -> list[bytearray]:
    """Return the first batches of a real log; offsets and epochs may be changed: no checksum covers them."""
    return [bytearray(whole_batches(LOG, 1, start=number)) for number in range(count)]


def with_field(batch: bytearray, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    return bytes(changed)


class LyingCluster:
    """A broker that leads `orders-0`, which ends at 1000 unless *fetched*, the row of its Fetch, changes that."""

    def __init__(self, fetched: Data | None = None, topics: list[Data] | None = None) -> None:
        row = {
            "highWatermark": 1000,
            "logStartOffset": 0,
            "abortedTransactions": None,
            "records": b"",
            **(fetched or {}),
        }
        rows = row.pop("rows", None) or [row]
        leaders = [{"leaderId": 1, "leaderEpoch": 4}]
        self._topics = topics or [{"name": "orders", "topicId": IDENTITY, "partitions": leaders}]
        offsets = [{"partitionIndex": 0, "offset": row.get("start", 0), "leaderEpoch": 4}]
        ends = [{"partition": 0, "leaderEpoch": 4, "endOffset": 1000}]
        answers: dict[str, Any] = {
            "Metadata": lambda _body: self.metadata(),
            "ListOffsets": {"topics": [{"name": "orders", "partitions": offsets}]},
            "OffsetForLeaderEpoch": {"topics": [{"topic": "orders", "partitions": ends}]},
            "Fetch": {"responses": [{"topicId": IDENTITY, "partitions": rows}]},
            "DescribeConfigs": {"results": []},
            "ListGroups": {"groups": []},
        }
        self.broker = FakeBroker(speaking(answers))

    def metadata(self) -> Data:
        node = {"nodeId": 1, "host": "localhost", "port": self.broker.port}
        return {"clusterId": "lies", "brokers": [node], "topics": self._topics}

    def followed(self, path: Path) -> Ran:
        """Follow it for some seconds."""
        with self.broker:
            began = time.monotonic()
            done = run_klog("follow", self.broker.bootstrap, "--to", path, "--timeout", "1s", "--max-wait", "100ms")
            assert time.monotonic() - began < 60
            assert b"Traceback" not in done.stderr
            assert self.broker.failed == []
        assert {entry.name for entry in path.parent.iterdir()} <= {path.name, "klog-backup"}
        return done


FIRST, SECOND, THIRD = batches(3)
RECORDS = {
    "no batch at all": (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20, 0),
    "a batch that claims two gigabytes": (with_field(FIRST, 8, ">i", 0x7FFFFFFF) + bytes(SECOND), 0),
    "a batch of a negative length": (with_field(FIRST, 8, ">i", -5), 0),
    "a batch of no length": (with_field(FIRST, 8, ">i", 0), 0),
    "a batch at a negative offset": (with_field(FIRST, 0, ">q", -5), 0),
    "a batch at the last of all offsets": (with_field(FIRST, 0, ">q", 0x7FFFFFFFFFFFFFFF), 0),
    "a magic that nobody knows": (with_field(FIRST, 16, ">b", 9), 0),
    "a checksum that does not fit": (with_field(FIRST, 17, ">I", 1), 0),
    "the same batch again": (bytes(FIRST) * 2, 0),
    "offsets that go backwards": (bytes(FIRST) + bytes(THIRD) + bytes(SECOND), 0),
    "a flood of nothing": (bytes(1 << 20), 0),
    "zeros after a batch": (bytes(FIRST) + bytes(1000), 1),
}


@pytest.mark.parametrize("case", sampled(RECORDS, 4))
def test_records_that_no_log_may_hold_do_not_get_into_the_copy(tmp_path: Path, case: str) -> None:
    """An answer with batches out of order is dropped whole; the partition is stopped, and reported."""
    records, kept = RECORDS[case]
    copy = tmp_path / "copies" / "copy"
    copy.parent.mkdir()
    done = LyingCluster({"records": records}).followed(copy)
    assert done.exit_code in (4, 8, 12), done.stderr
    assert b"orders-0" in done.stderr
    held = b"".join(path.read_bytes() for path in sorted((copy / "orders-0").glob("*.log")))
    assert held == bytes(FIRST) * kept


ROWS = {
    "a diverging epoch from nowhere": {"divergingEpoch": {"epoch": 0x7FFFFFFF, "endOffset": -5}},
    "a divergence beyond the end": {"divergingEpoch": {"epoch": 0, "endOffset": 0x7FFFFFFFFFFFFFFF}},
    "a high watermark below zero": {"highWatermark": -9, "records": bytes(FIRST)},
    "a log start beyond the high watermark": {"logStartOffset": 5000},
    "a log start below zero": {"logStartOffset": -7},
    "out of range at the log start": {"errorCode": 1, "highWatermark": -1, "logStartOffset": -1},
    "an error that nobody knows": {"errorCode": 12345, "highWatermark": -1},
    "a partition that nobody asked for": {"partitionIndex": 77, "records": bytes(FIRST)},
    "the partition many times": {"rows": [{"highWatermark": 1000, "records": bytes(FIRST)}] * 400},
    "more partitions than there are": {"rows": [{"partitionIndex": n, "records": b""} for n in range(50_000)]},
}


@pytest.mark.parametrize("case", sampled(ROWS, 4))
def test_rows_that_make_no_sense_end_in_a_message(tmp_path: Path, case: str) -> None:
    """Whatever an answer about a partition contains, the run ends, and its copy is a prefix of the sent data."""
    copy = tmp_path / "copies" / "copy"
    copy.parent.mkdir()
    done = LyingCluster(ROWS[case]).followed(copy)
    assert done.exit_code & ~(1 | 4 | 8) == 0, done.stderr
    held = b"".join(path.read_bytes() for path in sorted((copy / "orders-0").glob("*.log")))
    assert bytes(FIRST).startswith(held)
    assert {path.name for path in copy.iterdir() if path.is_dir()} <= {"orders-0"}


NAMES = ["../x", "..", ".", "", "a/b", "x" * 300, "/etc/klog", "a\0b", "a\nb", "..\\x", "\u202eevil"]


def test_names_that_are_none_become_no_directories(tmp_path: Path) -> None:
    """They are read from the network, and directories are named after them."""
    copy = tmp_path / "copies" / "copy"
    copy.parent.mkdir()
    partitions = [{"partitionIndex": n, "leaderId": 1, "leaderEpoch": 1} for n in (0, -1, -0x80000000)]
    topics = [{"name": name, "topicId": IDENTITY, "partitions": partitions} for name in NAMES]
    done = LyingCluster(topics=topics).followed(copy)
    assert done.exit_code == 8
    assert not [path for path in tmp_path.rglob("*-*") if path.is_dir() and path.parent != tmp_path]
    assert b"is no name of a topic" in done.stderr
    assert "\u202e".encode() not in done.stderr
