"""Real brokers start on the written log dir, serve it, change none of it, and accept new producers."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import clients, kafka
from tests.commands.write.sources import SOURCE, TARGETS, truth
from tests.conftest import Ran, run_klog, writable_copy

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]
Klog = Callable[..., Ran]
ONE = ("bytes", "time", "full", "tx", "gzip", "snappy", "lz4", "zstd", "stamp", "compact")
"""Topics of one partition."""


class Written(NamedTuple):
    """A broker that has started on a log dir into which klog wrote; *logs*: the written ones."""

    cluster: kafka.Cluster
    logs: dict[str, bytes]
    said: str


def logs(data: Path) -> dict[str, bytes]:
    """Return the logs of the topics, without empty ones."""
    found = sorted(data.glob("order.*/*.log"))
    return {str(path.relative_to(data)): path.read_bytes() for path in found if path.stat().st_size}


def write_all(source: Path, folder: Path, *words: str) -> None:
    """Half of the topics as batches, half as JSON lines, into a stopped broker's log dir; with their offsets."""
    data = folder / "data"
    verbatim = [source / f"order.{word}-0" for word in ("gzip", "snappy", "lz4", "zstd", "stamp", "compact")]
    verbatim += [source / f"order.idem-{number}" for number in range(2)]
    done = run_klog("write", *verbatim, "--to", data, "--keep-offsets", "--apply", *words)
    assert done.exit_code == 0, done.stderr
    file = folder / "records.jsonl"
    paths = [source / f"order.{word}-0" for word in ("bytes", "time", "full", "tx")]
    assert run_klog("dump", *paths, "--output", "jsonl", "--to", file).exit_code == 0
    done = run_klog("write", file, "--to", data, "--keep-offsets", "--apply", *words)
    assert done.exit_code == 0, done.stderr
    # Only a ZooKeeper shows that a topic is compacted, and may have gaps; its log dir does not.
    left_out = ["--topic", "order.[!c]*"] if words else []
    assert run_klog("verify", "--deep", data, *left_out).exit_code == 0
    file = folder / "unshifted.jsonl"
    file.write_text("".join(
        f'{{"topic":"order.crc","partition":0,"key":"k","value":"v","producer_id":{number},"producer_epoch":0,"sequence":0}}\n'
        for number in (*range(100), *range(1000, 1100))  # a broker of 2.8.2 takes another block of ids at each start
    ))  # fmt: skip
    done = run_klog("write", file, "--to", data, "--producers", "keep", "--apply", *words)
    assert done.exit_code == 0, done.stderr


@pytest.fixture(scope="module", params=[*sorted(TARGETS), "2.8.2"])
def written(
    request: pytest.FixtureRequest, image: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Written]:
    """A broker that starts on the written log dir; the one of 2.8.2 has a ZooKeeper, which alone has its topics."""
    folder, source = tmp_path_factory.mktemp(f"broker-{request.param}"), image(SOURCE) / "data"
    # Its cleaner would remove a tombstone under a consumer that comes late.
    cluster = kafka.Cluster(request.param, folder, settings={"log.cleaner.enable": "false"})
    try:
        if cluster.kraft:
            writable_copy(image(TARGETS[request.param]) / "data", folder / "data")
            write_all(source, folder)
        else:
            cluster.start()
            create_topics(cluster.bootstrap)
            cluster.stop()
            write_all(source, folder, "--one-replica")
        wrote, said = logs(folder / "data"), len(cluster.log()) if not cluster.kraft else 0
        writable_copy(folder / "data", folder / "written")
        cluster.start()
        clients.consume(cluster.bootstrap, "order.bytes", "read_uncommitted")
        yield Written(cluster, wrote, cluster.log()[said:])
    finally:
        cluster.__exit__()


def create_topics(bootstrap: str) -> None:
    """Make the topics of the corpus, without settings that a broker of 2.8.2 does not have."""
    counts: dict[int, dict[str, dict[str, str]]] = {}
    for name, (count, settings) in truth()["topics"].items():
        known = {word.removeprefix("internal."): value for word, value in settings.items()}
        counts.setdefault(count, {})[name] = known
    for count, topics in counts.items():
        clients.create(bootstrap, topics, count)


def test_the_broker_complains_of_nothing(written: Written) -> None:
    """No line of level WARN or ERROR about the topics; and no log is another one."""
    lines = [line for line in written.said.splitlines() if "order." in line]
    assert not [line for line in lines if "WARN" in line or "ERROR" in line]
    assert {
        name: content for name, content in logs(written.cluster.data).items() if name in written.logs
    } == written.logs


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_consumers_get_the_records(written: Written, isolation: str) -> None:
    """Offsets, times, keys, values and headers, as consumers of the first broker got them."""
    left_out = {tuple(one) for one in truth()["not_committed"]} if isolation == "read_committed" else set()
    for word in ONE:
        topic = f"order.{word}"
        wanted = [
            (offset, timestamp, _bytes(key), _bytes(value), tuple((name, _bytes(one)) for name, one in headers))
            for name, _, offset, _, timestamp, key, value, headers in truth()["records"]
            if name == topic and (topic, 0, offset) not in left_out
        ]
        found = clients.consume(written.cluster.bootstrap, topic, isolation)
        assert [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in found] == wanted, topic


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_java_consumers_get_the_records(written: Written, isolation: str) -> None:
    """All partitions, also of the topic with two: as the first broker's consumers got them."""
    topics = [f"order.{word}" for word in (*ONE, "idem")]
    left_out = {tuple(one) for one in truth()["not_committed"]} if isolation == "read_committed" else set()
    wanted = Counter(
        (name, str(number), str(offset), str(timestamp), "LogAppendTime" if kind == 2 else "CreateTime",
         *(_shown(part) for part in (key, value)),
         *(part for header, one in headers for part in ("=" + base64.b64encode(header.encode()).decode(), _shown(one))))
        for name, number, offset, kind, timestamp, key, value, headers in truth()["records"]
        if name in topics and (name, number, offset) not in left_out
    )  # fmt: skip
    program = kafka.program(kafka.NEWEST, "ReadRecords", written.cluster.bootstrap, isolation, *topics)
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert Counter(tuple(line.split(" ")) for line in done.stdout.splitlines()) == wanted


def _shown(text: str | None) -> str:
    return "-" if text is None else f"={text}"


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def test_the_dump_tool_finds_nothing(written: Written, dump_tool: kafka.DumpTool) -> None:
    """Every log, and every index against its log."""
    data = written.cluster.folder / "written"
    for name in written.logs:
        log = data / name
        files = [log, log.with_suffix(".index"), log.with_suffix(".timeindex")]
        for file in files:
            done = dump_tool.run("--deep-iteration", "--files", str(file))
            said = (done.stdout + done.stderr).decode()
            assert done.exit_code == 0, said
            assert "isvalid: false" not in said
            assert not [word for word in ("Mismatches", "mismatch", "out of order", "not found") if word in said], said


def test_without_the_shift_new_records_are_lost_in_silence(written: Written) -> None:
    """The effect of --producers keep there: the record of a new producer is reported as delivered, and is missing."""
    bootstrap = written.cluster.bootstrap
    before = clients.consume(bootstrap, "order.crc", "read_uncommitted")
    clients.with_librdkafka(bootstrap, "order.crc", "none", clients.records("lost", 1), enable_idempotence="true")
    assert clients.consume(bootstrap, "order.crc", "read_uncommitted") == before
    assert len(before) == 200


def test_new_producers_are_taken_for_new(written: Written) -> None:
    """Idempotent ones of 1, 2, 3, 5 and 8 records, whose ids begin at 0: every record is there, none is a duplicate."""
    bootstrap = written.cluster.bootstrap
    for count in (1, 2, 3, 5, 8):
        for topic in ("order.idem", "order.tx"):
            before = len(clients.consume(bootstrap, topic, "read_committed"))
            given = list(clients.records(f"new-{count}", count))
            clients.with_librdkafka(bootstrap, topic, "none", given, enable_idempotence="true")
            assert len(clients.consume(bootstrap, topic, "read_committed")) == before + count
    before = len(clients.consume(bootstrap, "order.tx", "read_committed"))
    clients.with_librdkafka(bootstrap, "order.tx", "none", clients.records("tx", 10), transaction="klog-tests")
    assert len(clients.consume(bootstrap, "order.tx", "read_committed")) == before + 10


def test_a_forced_recovery_changes_no_log(written: Written) -> None:
    """Killed, and without the marker of a clean stop: all logs are recovered, and are unchanged."""
    cluster = written.cluster
    cluster.stop()
    (cluster.data / ".kafka_cleanshutdown").unlink()
    (cluster.data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    before = logs(cluster.data)
    said = len(cluster.log())
    cluster.start()
    clients.consume(cluster.bootstrap, "order.bytes", "read_uncommitted")
    lines = [line for line in cluster.log()[said:].splitlines() if "order." in line]
    assert any("ecovering" in line or "Recover" in line for line in lines)
    assert not [line for line in lines if "ERROR" in line]
    assert {name: logs(cluster.data)[name] for name in before} == before


def test_open_transactions_are_ended_on_demand(klog: Klog, tmp_path: Path) -> None:
    """Otherwise readers of committed data would stop there for ever: no coordinator has the producer."""
    record = {"topic": "t", "key": "k", "value": "v", "producer_id": 7, "producer_epoch": 0, "sequence": 0}
    file = tmp_path / "open.jsonl"
    file.write_text(json.dumps(record | {"transactional": True}))
    done = klog("write", file, "--to", tmp_path / "open", "--output", "json")
    assert json.loads(done.stdout)["open_transactions"] == [
        {"topic": "t", "partition": 0, "producer_id": 7, "first_offset": 0}
    ]
    done = klog("write", file, "--to", tmp_path / "ended", "--output", "json", "--end-transactions", "abort")
    assert json.loads(done.stdout)["open_transactions"] == []
    assert (tmp_path / "ended" / "t-0" / "00000000000000000000.txnindex").stat().st_size == 34
    assert klog("verify", "--deep", tmp_path / "ended").exit_code == 0
