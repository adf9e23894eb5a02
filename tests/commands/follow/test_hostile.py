"""Clusters that lie: `klog follow` ends, names the fault, writes nothing elsewhere, and copies the right part."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest

from tests.commands.follow.scripted import (
    Change,
    ScriptedCluster,
    base_of,
    end_of,
    identity,
    log_of,
    of_fixture,
    renumbered,
)
from tests.conftest import Ran

Klog = Callable[..., Ran]
SECONDS = 30
GOOD = of_fixture("plain-2")
OTHER = of_fixture("lz4-broker-0")
CODES = {0, 1, 4, 5, 8, 9, 12, 13}


def metadata(change: Callable[[list[Data]], object]) -> dict[str, Change]:
    """Apply *change* to the topics that Metadata names."""

    def said(_: ApiRequest, body: Data) -> Data:
        change(body["topics"])
        return body

    return {"Metadata": said}


def fetched(change: Callable[[Data], object], topic: str = "bad") -> dict[str, Change]:
    """Apply *change* to each answer about one topic's partition."""

    def said(_: ApiRequest, body: Data) -> Data:
        for one in body["responses"]:
            if one["topicId"] == identity(topic):
                for row in one["partitions"]:
                    change(row)
        return body

    return {"Fetch": said}


def also(**fields: object) -> Callable[[list[Data]], object]:
    """Return a change that names one more topic, like the first one but for *fields*."""
    return lambda topics: topics.append(topics[0] | fields)


def numbered(*numbers: int, **fields: object) -> Callable[[list[Data]], object]:
    """Return a change that gives the topic `bad` partitions of these numbers."""

    def change(topics: list[Data]) -> None:
        for topic in topics:
            if topic["name"] == "bad":
                one = topic["partitions"][0] | fields
                topic["partitions"] = [one | {"partitionIndex": number} for number in numbers]

    return change


def with_records(*batches: bytes) -> Callable[[Data], object]:
    """Return a change that sends these bytes, whatever was asked for."""
    return lambda row: row.update(records=b"".join(batches), errorCode=0)


def flipped(batch: bytes) -> bytes:
    """Return a batch with one bit flipped, under its checksum."""
    return batch[:-1] + bytes((batch[-1] ^ 0xFF,))


def sized(batch: bytes, size: int) -> bytes:
    """Return a batch that claims another size."""
    return batch[:8] + struct.pack(">i", size) + batch[12:]


def twice(body: Data) -> Data:
    """Return an answer that has each partition twice, and one that was not requested."""
    for topic in body["responses"]:
        rows = topic["partitions"]
        topic["partitions"] = [*rows, *rows, *(row | {"partitionIndex": 7} for row in rows)]
    return body | {"responses": [*body["responses"], *body["responses"]]}


OTHER_EPOCH = [renumbered(batch, base_of(batch), 9 - at) for at, batch in enumerate(GOOD)]
BACKWARDS = [GOOD[0], GOOD[1], GOOD[0]]
OVERLAPPING = [GOOD[0], renumbered(GOOD[1], base_of(GOOD[1]) - 5)]
NEGATIVE = [renumbered(GOOD[0], -40)]
AT_THE_END = [renumbered(GOOD[0], 2**63 - 1 - 19)]

CASES: dict[str, tuple[dict[str, Change], int, str]] = {
    "a topic above": (metadata(also(name="../x", topicId=identity("x"))), 8, "is no name of a topic"),
    "an absolute topic": (metadata(also(name="/tmp/x", topicId=identity("x"))), 8, "is no name of a topic"),
    "a topic of 300 letters": (metadata(also(name="x" * 300, topicId=identity("x"))), 8, "is no name of a topic"),
    "a topic without a name": (metadata(also(name="", topicId=identity("x"))), 8, "is no name of a topic"),
    "a topic of one dot": (metadata(also(name=".", topicId=identity("x"))), 8, "is no name of a topic"),
    "a topic of two dots": (metadata(also(name="..", topicId=identity("x"))), 8, "is no name of a topic"),
    "a topic with a line feed": (metadata(also(name="a\nb", topicId=identity("x"))), 8, "is no name of a topic"),
    "the same topic twice": (metadata(lambda topics: topics.append(topics[0] | {"topicId": identity("x")})), -1, ""),
    "negative numbers": (metadata(numbered(-1, -(2**31), 0)), 0, ""),
    "huge numbers": (metadata(numbered(2**31 - 1, 0)), 0, ""),
    "the same number twice": (metadata(numbered(0, 0)), 0, ""),
    "a leader that is nobody": (metadata(numbered(0, leaderId=-1)), 8, "LEADER_NOT_AVAILABLE"),
    "a leader that nobody knows": (metadata(numbered(0, leaderId=77)), 8, "LEADER_NOT_AVAILABLE"),
    "epochs below all": (metadata(numbered(0, leaderEpoch=-(2**31))), 0, ""),
    "a high watermark beyond": (fetched(lambda row: row.update(highWatermark=2**62)), 8, ", though the high"),
    "a high watermark below": (fetched(lambda row: row.update(highWatermark=3)), 0, ""),
    "a high watermark below all": (fetched(lambda row: row.update(highWatermark=-(2**63))), 8, ""),
    "a log start beyond the end": (fetched(lambda row: row.update(logStartOffset=2**62)), 0, ""),
    "a log start below all": (fetched(lambda row: row.update(logStartOffset=-(2**63))), 0, ""),
    "a batch of 2 GiB": (fetched(with_records(sized(GOOD[0], 2**31 - 1))), 4, "bad-0: "),
    "a batch of no bytes": (fetched(with_records(sized(GOOD[0], 0))), 4, "bad-0: "),
    "a batch of less than nothing": (fetched(with_records(sized(GOOD[0], -(2**31)))), 4, "bad-0: "),
    "wrong checksums": (fetched(with_records(flipped(GOOD[0]))), 4, "its checksum is "),
    "offsets that go backwards": (fetched(with_records(*BACKWARDS)), 4, "cannot follow"),
    "batches that overlap": (fetched(with_records(*OVERLAPPING)), 4, "cannot follow"),
    "negative offsets": (fetched(with_records(*NEGATIVE)), 4, "bad-0: "),
    "the last offset of all": (fetched(with_records(*AT_THE_END)), 4, "cannot follow"),
    "epochs that go backwards": (fetched(with_records(*OTHER_EPOCH)), 4, "cannot follow"),
    "no batches at all": (fetched(with_records(b"\xff" * 5000)), 4, "bad-0: "),
    "zeros": (fetched(with_records(bytes(5000))), 4, "bad-0: "),
    "out of range for ever": (fetched(lambda row: row.update(errorCode=1, records=b"")), 8, "bad-0: "),
    "an error nobody knows": (fetched(lambda row: row.update(errorCode=-4711, records=b"")), 8, "bad-0: "),
    "a divergence from nothing": (fetched(lambda row: row.update(divergingEpoch={"epoch": 3, "endOffset": 9})), 8, ""),
    "partitions twice": ({"Fetch": lambda _, body: twice(body)}, 0, ""),
    "an empty answer for ever": ({"Fetch": lambda _, body: body | {"responses": []}}, 8, ""),
    "a session that is none": ({"Fetch": lambda _, body: body | {"errorCode": 70, "responses": []}}, 8, ""),
    "throttled for ever": ({"Fetch": lambda _, body: {"throttleTimeMs": 2**31 - 1, "responses": []}}, 8, ""),
    "starts below all": (
        {"ListOffsets": lambda _, body: _offsets(body, -(2**63))}, -1, "",
    ),
    "starts beyond all": ({"ListOffsets": lambda _, body: _offsets(body, 2**63 - 1)}, -1, ""),
    "an answer of nobody's": ({"ListOffsets": lambda _, body: {"topics": []}}, 8, ""),
    "bytes that are no Kafka": ({"Fetch": lambda _, body: b"HTTP/1.1 400 Bad Request\r\n\r\n"}, 8, "this is HTTP"),
    "an answer that claims 2 GiB": ({"Fetch": lambda _, body: struct.pack(">i", 2**31 - 1) + b"x" * 99}, 8, ""),
    "an answer that never ends": ({"Fetch": lambda _, body: struct.pack(">i", 10**5) + b"x" * 99}, 8, ""),
}  # fmt: skip
ALL_STAND = {
    "an empty answer for ever", "a session that is none", "throttled for ever", "starts beyond all",
    "an answer of nobody's", "bytes that are no Kafka", "an answer that claims 2 GiB", "an answer that never ends",
}  # fmt: skip
"""The cases in which no partition is answered."""


def _offsets(body: Data, offset: int) -> Data:
    for topic in body["topics"]:
        for row in topic["partitions"]:
            row["offset"] = offset
    return body


def outside(folder: Path) -> set[str]:
    """Return what lies in *folder* that is no copy."""
    return {one.name for one in folder.iterdir()} - {"copy", "klog-backup"}


@pytest.mark.parametrize("case", CASES)
def test_a_cluster_that_lies_does_no_harm(klog: Klog, tmp_path: Path, case: str) -> None:
    """One code of the table, one line each; the other partition is copied whole, where it is answered at all."""
    changes, exit_code, said = CASES[case]
    folder = tmp_path / "in"
    folder.mkdir()
    before = {one.name for one in tmp_path.iterdir()}
    began = time.monotonic()
    with ScriptedCluster({"bad": GOOD, "good": OTHER}, changes) as cluster:
        # A partition that is given up after a few tries must have the time for them on a loaded machine.
        options = ("--timeout", "20s" if exit_code == 4 else "1s", "--max-wait", "100ms")
        ran = klog("follow", cluster.bootstrap, "--to", folder / "copy", *options)
        assert not cluster.failed
    assert time.monotonic() - began < SECONDS
    assert ran.exit_code == exit_code or (exit_code == -1 and ran.exit_code in CODES), ran
    assert said.encode() in ran.stderr, ran.stderr
    assert b"Traceback" not in ran.stderr
    assert outside(folder) == set()
    assert {one.name for one in tmp_path.iterdir()} == before
    directories = {one.name for one in (folder / "copy").iterdir() if one.is_dir()}
    assert {"bad-0", "good-0"} <= directories <= {"bad-0", "good-0", "bad-2147483647"}
    if case not in ALL_STAND:
        assert log_of(folder / "copy", "good-0") == b"".join(OTHER)
    checked = klog("verify", folder / "copy", "--deep")
    assert checked.exit_code == 0, checked.stdout.decode()


def test_a_batch_with_a_wrong_checksum_is_asked_for_four_times(klog: Klog, tmp_path: Path) -> None:
    """Those before it are kept; when it is right again, the next run continues."""
    asked: list[int] = []

    def spoil(request: ApiRequest, body: Data) -> Data:
        for topic in body["responses"]:
            for row in topic["partitions"]:
                if topic["topicId"] == identity("bad") and row["records"]:
                    asked.append(1)
                    row["records"] = GOOD[0] + GOOD[1] + flipped(GOOD[2]) if len(asked) == 1 else flipped(GOOD[2])
        return body

    copy = tmp_path / "copy"
    with ScriptedCluster({"bad": GOOD, "good": OTHER}, {"Fetch": spoil}) as cluster:
        ran = klog("follow", cluster.bootstrap, "--to", copy)
        assert ran.exit_code == 4
        assert ran.stderr.count(b"its checksum is ") == 1
        assert 4 <= len(asked) <= 8  # one is in flight while the last one is written
        assert log_of(copy, "bad-0") == GOOD[0] + GOOD[1]
        assert log_of(copy, "good-0") == b"".join(OTHER)
        cluster.changes.clear()
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
    assert log_of(copy, "bad-0") == b"".join(GOOD)


def test_a_cluster_without_topic_ids_is_fetched_by_names(klog: Klog, tmp_path: Path) -> None:
    """All ids are zero, as they are before a cluster of ZooKeeper has given some."""
    zero = "A" * 22

    def by_name(request: ApiRequest, body: Data) -> Data:
        assert request.body is not None
        assert request.version <= 12
        rows = cluster._fetch(
            request.body | {"topics": [one | {"topicId": identity(one["topic"])} for one in request.body["topics"]]}
        )
        for asked, one in zip(request.body["topics"], rows["responses"], strict=True):
            one["topic"] = asked["topic"]
        return rows

    changes = metadata(lambda topics: [topic.update(topicId=zero) for topic in topics])
    copy = tmp_path / "copy"
    with ScriptedCluster({"bad": GOOD, "good": OTHER}, {**changes, "Fetch": by_name}) as cluster:
        for _ in range(2):
            ran = klog("follow", cluster.bootstrap, "--to", copy)
            assert (ran.exit_code, cluster.failed) == (0, []), ran
    assert log_of(copy, "bad-0") == b"".join(GOOD)
    assert not (copy / "bad-0" / "partition.metadata").exists()


def test_another_cluster_at_the_same_address_changes_nothing(klog: Klog, tmp_path: Path) -> None:
    """Exit code 8, and not a byte of the copy is another one."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"bad": GOOD}) as cluster:
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        cluster.topics = {"bad": OTHER}
        cluster.changes["Metadata"] = lambda _, body: body | {"clusterId": "another"}
        ran = klog("follow", cluster.bootstrap, "--to", copy)
        assert ran.exit_code == 8
        assert b"is cluster another: nothing was changed" in ran.stderr
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_disk_that_takes_no_more_ends_it(klog: Klog, tmp_path: Path) -> None:
    """A failed write on the thread of a leader ends the whole run, in one line; the next run continues."""
    copy, wanted = tmp_path / "copy", b"".join(GOOD)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    limited = [sys.executable, "-c", "import resource, sys\nfrom klog_cli.app import main\n"]
    limited[-1] += f"resource.setrlimit(resource.RLIMIT_FSIZE, 2 * ({len(wanted) // 2},))\nsys.exit(main())"
    with ScriptedCluster({"bad": GOOD}) as cluster:
        command = [*limited, "follow", cluster.bootstrap, "--to", str(copy), "--partition-bytes", "1"]
        done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
        assert done.returncode == 8, done.stderr
        assert done.stderr.count(b"\n") == 1
        assert b"bad-0" in done.stderr
        assert b"File too large" in done.stderr
        assert len(log_of(copy, "bad-0")) <= len(wanted) // 2
        assert wanted.startswith(log_of(copy, "bad-0"))
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
    assert log_of(copy, "bad-0") == wanted


def test_memory_is_bounded_whatever_is_announced(tmp_path: Path) -> None:
    """The bound is twice --fetch-bytes and 64 MB, however much the leader sends, and however large its batches claim to
    be."""
    huge = [renumbered(GOOD[0], 20 * at) for at in range(20_000)]

    def more(_: ApiRequest, body: Data) -> Data:
        for topic in body["responses"]:
            for row in topic["partitions"]:
                row["records"] = b"".join(huge[:4_000])
        return body

    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with ScriptedCluster({"bad": huge}, {"Fetch": more}) as cluster:
        code = "import sys\nfrom klog_cli.app import main\ntry:\n  sys.exit(main())\nfinally:\n"
        code += "  print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"
        command = [sys.executable, "-c", code, "follow", cluster.bootstrap, "--to", str(tmp_path / "copy")]
        done = subprocess.run(
            [*command, "--fetch-bytes", "1MiB", "--timeout", "1s"],
            capture_output=True, env=environment, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode in CODES, done.stderr
    assert int(done.stdout.split()[-1]) < (64 + 2 + 32) * 1024
    assert end_of(huge[3_999]) == 80_000
