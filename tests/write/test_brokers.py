"""Real brokers start on what was written, serve it, change none of it, and take new producers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran, run_klog, writable_copy
from tests.write.sources import SOURCE, TARGETS, truth

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]
Klog = Callable[..., Ran]
ONE = ("bytes", "time", "full", "tx", "gzip", "snappy", "lz4", "zstd", "stamp", "compact")
"""Topics of one partition."""


class Written(NamedTuple):
    """A broker that has started on a log dir into which klog wrote; *logs*: what it wrote."""

    cluster: kafka.Cluster
    logs: dict[str, bytes]
    said: str


def logs(data: Path) -> dict[str, bytes]:
    """Return the logs of the topics, without empty ones."""
    found = sorted(data.glob("order.*/*.log"))
    return {str(path.relative_to(data)): path.read_bytes() for path in found if path.stat().st_size}


@pytest.fixture(scope="module", params=sorted(TARGETS))
def written(
    request: pytest.FixtureRequest, image: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Written]:
    """Half of the topics as batches, half as JSON lines; with their offsets, and with shifted producers."""
    folder = tmp_path_factory.mktemp(f"broker-{request.param}")
    data = writable_copy(image(TARGETS[request.param]) / "data", folder / "data")
    source = image(SOURCE) / "data"
    verbatim = [source / f"order.{word}-0" for word in ("gzip", "snappy", "lz4", "zstd", "stamp", "compact")]
    verbatim += [source / f"order.idem-{number}" for number in range(2)]
    done = run_klog("write", *verbatim, "--to", data, "--keep-offsets", "--apply")
    assert done.exit_code == 0, done.stderr
    file = folder / "records.jsonl"
    paths = [source / f"order.{word}-0" for word in ("bytes", "time", "full", "tx")]
    assert run_klog("dump", *paths, "--output", "jsonl", "--to", file).exit_code == 0
    done = run_klog("write", file, "--to", data, "--keep-offsets", "--apply")
    assert done.exit_code == 0, done.stderr
    assert run_klog("verify", "--deep", data).exit_code == 0
    wrote = logs(data)
    writable_copy(data, folder / "written")
    with kafka.Cluster(request.param, folder) as cluster:
        clients.consume(cluster.bootstrap, "order.bytes", "read_uncommitted")
        yield Written(cluster, wrote, cluster.log())


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
    """Killed, and without the marker of a clean stop: all logs are recovered, and are what they were."""
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
    """Else readers of committed data would stop there for ever: no coordinator knows the producer."""
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
