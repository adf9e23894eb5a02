"""Events of topics and brokers during a copy: one real broker, behind a proxy that notes each request."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from klog.commands.follow.client.client_requests import REQUESTS
from klog.formats.wire_messages import api

from tests.brokers import clients, kafka
from tests.commands.follow.following import Following, batches, follow, followed, marks
from tests.conftest import Ran

pytestmark = pytest.mark.kafka
PROXY, PROXIED = kafka.PORT + 7, kafka.PORT + 6


class Proxy:
    """Passes bytes on to a broker; *asked*: the requests of klog, by API."""

    def __init__(self, port: int, target: int) -> None:
        self._target, self.asked = target, Counter[str]()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("localhost", self._target))
                except OSError:
                    client.close()
                    continue
                for work in (self._requests, self._answers):
                    threading.Thread(target=work, args=(client, broker), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError), client, broker, client.makefile("rb") as sent:
            while len(head := sent.read(4)) == 4:
                (size,) = struct.unpack(">i", head)
                data = sent.read(size)
                if len(data) < size:  # somebody was killed
                    break
                key, _, _, length = struct.unpack_from(">hhih", data)
                if data[10 : 10 + max(length, 0)] == b"klog-follow":
                    known = api(key)
                    self.asked[known.name if known is not None else str(key)] += 1
                broker.sendall(head + data)

    def _answers(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := broker.recv(1 << 16):
                client.sendall(part)
        for each in (client, broker):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@dataclass
class Live:
    """A broker, and its address for klog, through the proxy."""

    broker: kafka.Cluster
    proxy: Proxy
    bootstrap: str = f"localhost:{PROXY}"

    def fill(self, topic: str, count: int, tag: str = "x") -> None:
        """Write records, ten in a batch."""
        clients.with_librdkafka(self.broker.bootstrap, topic, "lz4", clients.records(f"{topic} {tag}", count))

    def make(self, topic: str, count: int, settings: dict[str, str] | None = None) -> None:
        clients.create(self.broker.bootstrap, {topic: settings or {}})
        self.fill(topic, count)

    def delete_before(self, topic: str, offset: int) -> None:
        from confluent_kafka import TopicPartition

        client = clients.admin(self.broker.bootstrap)  # without a name it would be deleted before the answer arrives
        for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
            assert future.result(clients.WAIT_S).low_watermark == offset

    def remove(self, topic: str) -> None:
        client = clients.admin(self.broker.bootstrap)
        for future in client.delete_topics([topic]).values():
            future.result(clients.WAIT_S)
        until = time.monotonic() + clients.WAIT_S
        while topic in client.list_topics(timeout=clients.WAIT_S).topics:
            assert time.monotonic() < until
            time.sleep(0.1)

    def limit(self, *words: str) -> None:
        """Change the quota of klog."""
        entity = ("--entity-type", "clients", "--entity-name", "klog-follow")
        tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", self.broker.bootstrap, "--alter", *entity, *words)
        subprocess.run(kafka.java(kafka.NEWEST, *tool), check=True, capture_output=True, timeout=120)

    def log(self, topic: str) -> bytes:
        return batches(self.broker.data / f"{topic}-0")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One broker for all."""
    proxy = Proxy(PROXY, PROXIED)
    own = f"PLAINTEXT://localhost:{kafka.PORT}"
    settings = {
        "listeners": f"{own},PROXIED://localhost:{PROXIED},CONTROLLER://localhost:{kafka.PORT + 1}",
        "advertised.listeners": f"{own},PROXIED://localhost:{PROXY}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    try:
        with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("live"), settings=settings) as broker:
            yield Live(broker, proxy)
    finally:
        proxy.close()


def clean(klog: Callable[..., Ran], copy: Path) -> None:
    checked = klog("verify", copy, "--deep")
    assert checked.exit_code == 0, checked.stdout.decode()


def test_records_deleted_within_a_batch_move_the_log_start(
    live: Live, klog: Callable[..., Ran], tmp_path: Path
) -> None:
    """An existing copy keeps its records; a fresh one begins with the whole batch, and starts within it."""
    live.make("trimmed", 60)
    old, fresh = tmp_path / "old", tmp_path / "fresh"
    followed(live.bootstrap, old, "--topic", "trimmed")
    before = batches(old / "trimmed-0")
    live.delete_before("trimmed", 25)
    for copy in (old, fresh):
        row = followed(live.bootstrap, copy, "--topic", "trimmed")["trimmed-0"]
        assert (row["log_start_offset"], row["log_end_offset"], row["missed"]) == (25, 60, [])
        clean(klog, copy)
    assert batches(old / "trimmed-0") == before == live.log("trimmed")
    assert [path.stem for path in (fresh / "trimmed-0").glob("*.log")] == [f"{20:020}"]
    assert before.endswith(batches(fresh / "trimmed-0"))


def test_what_was_deleted_before_it_was_copied_is_said(live: Live, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """The copy continues behind it, in a new segment."""
    live.make("late", 30)
    copy = tmp_path / "copy"
    followed(live.bootstrap, copy, "--topic", "late")
    before = batches(copy / "late-0")
    live.fill("late", 40, "more")
    live.delete_before("late", 45)
    row = followed(live.bootstrap, copy, "--topic", "late", exit_code=4)["late-0"]
    assert row["missed"] == [[30, 44]]
    assert "late-0: offsets 30–44 were deleted before they were copied" in row["said"]
    assert [path.stem for path in sorted((copy / "late-0").glob("*.log"))] == [f"{0:020}", f"{40:020}"]
    after = batches(copy / "late-0")
    assert after.startswith(before)
    assert live.log("late").endswith(after[len(before) :])
    assert followed(live.bootstrap, copy, "--topic", "late")["late-0"]["missed"] == []
    clean(klog, copy)


def test_a_topic_made_anew_is_copied_anew(live: Live, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """The old one is in the backup; and when the topic is deleted, its copy stays."""
    live.make("anew", 40)
    copy = tmp_path / "copy"
    followed(live.bootstrap, copy, "--topic", "anew")
    before = batches(copy / "anew-0")
    live.remove("anew")
    clients.create(live.broker.bootstrap, {"anew": {}})
    live.fill("anew", 20, "second")
    row = followed(live.bootstrap, copy, "--topic", "anew", exit_code=1)["anew-0"]
    (backup,) = row["backups"]
    assert batches(Path(backup) / "originals" / "anew-0") == before
    assert batches(copy / "anew-0") == live.log("anew")
    live.remove("anew")
    kept = marks(copy)
    ran = follow(live.bootstrap, copy, "--topic", "ane*")
    assert ran.exit_code == 4
    assert b"anew: the cluster has no such topic any more; the copy stays" in ran.stderr
    assert marks(copy) == kept
    clean(klog, copy)


def test_a_broker_that_restarts_and_topics_that_appear(live: Live, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """--continuous continues as soon as the broker is back, and ends soon after a signal."""
    live.make("going", 50)
    copy = tmp_path / "copy"
    with Following(live.bootstrap, copy, "--topic", "going*") as running:
        running.wait_for("^going-0 append .* LEO=50$")
        live.broker.kill()
        live.broker.start()
        live.fill("going", 30, "after")
        running.wait_for("^going-0 append .* LEO=80$")
        live.make("going.too", 10)
        running.wait_for("^going.too-0 append .* LEO=10$")
        began = time.monotonic()
        assert running.end() == 0, running.said
        assert time.monotonic() - began < 20
    for topic in ("going", "going.too"):
        assert batches(copy / f"{topic}-0") == live.log(topic)
    clean(klog, copy)


def test_a_killed_copy_goes_on(live: Live, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """At any moment: what there is is a prefix of the leader's log, and the next run brings the rest."""
    live.make("killed", 600)
    copy, wanted, chance = tmp_path / "copy", live.log("killed"), random.Random("kills")
    for _ in range(4):
        with Following(live.bootstrap, copy, "--topic", "killed", "--partition-bytes", "1", "--flush", "1"):
            until = time.monotonic() + 90
            size = len(batches(copy / "killed-0"))
            while len(batches(copy / "killed-0")) == size < len(wanted) and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(chance.random() / 20)
        assert wanted.startswith(batches(copy / "killed-0"))
    followed(live.bootstrap, copy, "--topic", "killed")
    assert batches(copy / "killed-0") == wanted
    clean(klog, copy)


def test_a_broker_that_answers_nothing_is_given_up(live: Live, tmp_path: Path) -> None:
    """It is stopped, not dead: connections stay open, without an answer."""
    live.make("silent", 10)
    followed(live.bootstrap, tmp_path / "copy", "--topic", "silent")
    assert live.broker._broker is not None
    live.broker._broker.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        ran = follow(live.bootstrap, tmp_path / "copy", "--topic", "silent", "--timeout", "2s")
        assert ran.exit_code == 8, ran
        assert time.monotonic() - began < 60
        assert b"does not answer" in ran.stderr
    finally:
        live.broker._broker.send_signal(signal.SIGCONT)
    assert batches(tmp_path / "copy" / "silent-0") == live.log("silent")


def test_a_quota_slows_a_copy_down_and_nothing_else(live: Live, tmp_path: Path) -> None:
    """Throttled answers are empty; follow waits for the whole throttle time."""
    live.make("slow", 900)
    live.limit("--add-config", "consumer_byte_rate=5000")
    try:
        ran = follow(live.bootstrap, tmp_path / "copy", "--topic", "slow", "--trace", "--partition-bytes", "20KiB")
    finally:
        live.limit("--delete-config", "consumer_byte_rate")
    assert ran.exit_code == 0, ran
    assert b"slow-0 throttled ms=" in ran.stdout
    assert batches(tmp_path / "copy" / "slow-0") == live.log("slow")


def test_only_reading_requests_were_sent(live: Live, tmp_path: Path) -> None:
    """All requests of any run above are in the list of the docs; none joins, commits, creates or writes."""
    live.make("asked", 10)
    followed(live.bootstrap, tmp_path / "copy", "--topic", "asked")
    never = {"SaslHandshake", "SaslAuthenticate"}  # this listener asks for no name
    assert {"Fetch", "Metadata", "ListOffsets", "DescribeConfigs", "ListGroups"} <= live.proxy.asked.keys()
    assert live.proxy.asked.keys() <= REQUESTS.keys() - never
