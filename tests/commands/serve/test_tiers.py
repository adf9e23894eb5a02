"""`klog serve --remote`: consumers get both tiers as from the brokers that wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import kafka
from tests.commands.serve.readers import CONSOLES, PROPERTY, READERS, Row, printed, with_librdkafka
from tests.commands.serve.serving import Serving, Wire
from tests.conftest import CORPORA
from tests.support.s3_server import proxied, s3_server, upload, use
from tests.support.tiers import Situation, situation, unpack

KEYS = ("--remote-keys", f"key1={CORPORA / 'tiered/make/keys/private.pem'}")
OTHERS = ("unclean", "stuck", "orphans", "aiven-plain", "lost-cluster", "lost-cluster-aiven")
SITUATIONS = (
    *("house", "house391", "gappy", "unclean-tail", "aiven-encrypted", "aiven391"),
    *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS),
)
KINDS = {
    "earliest": -2,
    "latest": -1,
    "max_timestamp": -3,
    "earliest_local": -4,
    "latest_tiered": -5,
    "earliest_pending_upload": -6,
}
FORGETS = "stopped-0"
"""A broker forgets its highest remote offset at a restart when it copies nothing any more."""


@contextmanager
def serving(found: Situation, *options: str) -> Iterator[Serving]:
    """Brokers hide what follows an open transaction."""
    with Serving(found.leader, "--remote", found.tier, *KEYS, "--open-transactions", "hide", *options) as server:
        yield server


def answers(found: Situation) -> dict[tuple[str, int], dict[str, Any]]:
    """The answers that clients got, by topic and partition."""
    named = ((name.rpartition("-"), told) for name, told in found.clients.items())
    return {(topic, int(number)): told for (topic, _, number), told in named}


def theirs(found: Situation, told: dict[str, Any]) -> list[list[Any]]:
    """The records of consumers; those of a dead branch are left out."""
    if found.name != "unclean-tail":
        return [row[:4] for row in told["uncommitted"]]
    lines = (found.leader / "split-0/leader-epoch-checkpoint").read_text().split("\n")[2:]
    starts = [tuple(map(int, reversed(line.split()))) for line in lines if line]
    return [row[:4] for row in told["uncommitted"] if row[5] == max(one for one in starts if one[0] <= row[0])[1]]


def by_partition(rows: list[Row]) -> dict[tuple[str, int], list[list[Any]]]:
    found: dict[tuple[str, int], list[list[Any]]] = {}
    for topic, number, offset, timestamp, key, value, _ in rows:
        texts = [None if one is None else one.decode() for one in (key, value)]
        found.setdefault((topic, number), []).append([offset, timestamp, *texts])
    return found


@pytest.mark.corpora
@pytest.mark.parametrize("name", SITUATIONS)
def test_consumers_get_what_brokers_handed_out(image: Callable[[str], Path], name: str) -> None:
    """Both isolation levels; of a dead branch nothing."""
    found = situation(image, name)
    topics = list(dict.fromkeys(topic for topic, _ in answers(found)))
    with serving(found) as server:
        rows = by_partition(with_librdkafka(server.bootstrap, topics, "read_uncommitted", None))
        committed = by_partition(with_librdkafka(server.bootstrap, topics, "read_committed", None))
        for place, told in answers(found).items():
            wanted = theirs(found, told)
            kept = {row[0] for row in wanted}
            read = rows.get(place, [])
            assert [row[0] for row in read] == [row[0] for row in told["uncommitted"]]
            assert [row for row in read if row[0] in kept] == wanted
            assert [row[0] for row in committed.get(place, [])] == told["committed"]
        assert "left out" not in server.said


@pytest.mark.corpora
def test_other_clients_read_both_tiers(image: Callable[[str], Path]) -> None:
    found = situation(image, "aiven-zstd")
    place, told = ("alpha", 0), answers(found)["alpha", 0]
    with serving(found) as server:
        for name in ("kafka-python", "aiokafka"):
            read = by_partition(READERS[name](server.bootstrap, "alpha", "read_committed", None))[place]
            assert [row[0] for row in read] == told["committed"]


@pytest.mark.corpora
def test_offsets_that_neither_tier_has(image: Callable[[str], Path], tmp_path: Path) -> None:
    """Without the entries of a segment its offsets are a hole: it is named at the start, and skipped unless asked."""
    found = situation(image, "house")
    data = tmp_path / "data"
    shutil.copytree(found.leader, data)
    for one in ("plain-0", "plain-1"):
        for file in (data / one).glob("0*"):
            file.unlink()
        (data / one / f"{400:020}.log").touch()
    for option, code in (("stop", 1), ("skip", 0)):
        with Serving(data, "--remote", found.tier, "--damaged", option) as server, Wire(server.port) as wire:
            assert server.says("plain-0: offsets 149–399: in neither tier")
            assert server.says("partitions with segments in remote storage")
            assert wire.fetch("plain", 148)["errorCode"] == 0
            assert wire.fetch("plain", 149)["errorCode"] == code


@pytest.mark.corpora
@pytest.mark.kafka
def test_kafkas_console_consumer_reads_both_tiers(image: Callable[[str], Path]) -> None:
    found = situation(image, "house")
    name, version = CONSOLES[kafka.NEWEST][0], kafka.NEWEST
    with serving(found) as server:
        for topic, level in (("tx", "read_committed"), ("cut", "read_uncommitted")):
            what = ("--topic", topic, "--partition", "0", "--offset", "earliest", "--isolation-level", level)
            shown = (PROPERTY[version], "print.offset=true", PROPERTY[version], "print.value=false")
            lines = printed(
                version, name, "--bootstrap-server", server.bootstrap, *what, *shown, "--timeout-ms", "9000"
            )
            told = answers(found)[topic, 0]
            offsets = told["committed"] if level == "read_committed" else [row[0] for row in told["uncommitted"]]
            assert sorted(int(line.decode().removeprefix("Offset:")) for line in lines) == offsets


@pytest.mark.corpora
@pytest.mark.parametrize("name", SITUATIONS)
def test_list_offsets_of_every_kind(image: Callable[[str], Path], name: str) -> None:
    """Log start, local start, highest remote offset, the next one to be copied, both ends, times; epochs."""
    found = situation(image, name)
    with serving(found) as server, Wire(server.port) as wire:

        def ask(place: tuple[str, int], timestamp: int, level: int = 0) -> dict[str, Any]:
            one = {"partitionIndex": place[1], "timestamp": timestamp}
            topics = [{"name": place[0], "partitions": [one]}]
            body = {"replicaId": -1, "isolationLevel": level, "topics": topics, "timeoutMs": 5000}
            (topic,) = wire.ask("ListOffsets", 11, body)["topics"]
            return dict(topic["partitions"][0])

        for place, told in answers(found).items():
            known = {kind: offset for kind, offset in told["offsets"].items() if isinstance(offset, int)}
            if f"{place[0]}-{place[1]}" == FORGETS:
                known |= {
                    "latest_tiered": ask(place, -5)["offset"],
                    "earliest_pending_upload": ask(place, -6)["offset"],
                }
            shown = {kind: ask(place, KINDS[kind]) for kind in known if kind in KINDS}
            assert {kind: one["offset"] for kind, one in shown.items()} == {kind: known[kind] for kind in shown}
            assert ask(place, -1, 1)["offset"] == known["last_stable"]
            for kind, epoch in told["epochs"].items():
                if kind in shown and f"{place[0]}-{place[1]}" != FORGETS:
                    assert (kind, shown[kind]["leaderEpoch"]) == (kind, epoch)
            for time, offset, *stamp in told.get("times", ()):
                answer = ask(place, time)
                assert (answer["offset"], answer["timestamp"]) == (offset, stamp[0] if stamp else answer["timestamp"])


LOST = {
    "d-log-missing": range(36, 48),
    "d-log-cut": range(30, 36),
    "d-log-cut-clean": range(21, 24),
    "d-swapped": range(36, 60),
    "d-log-flip": range(21, 24),
    "d-log-empty": range(24, 36),
    "d-log-grown": range(0),
    "d-all-missing": range(36, 48),
    "d-first-missing": range(12),
    "d-index-missing": range(0),
    "d-index-lies": range(0),
    "d-timeindex-missing": range(0),
}


@pytest.mark.corpora
def test_damage_in_the_tier_is_told_and_the_rest_is_served(image: Callable[[str], Path]) -> None:
    found = situation(image, "damaged")
    with serving(found) as server:
        rows = by_partition(with_librdkafka(server.bootstrap, list(LOST), "read_uncommitted", None))
        for topic, lost in LOST.items():
            told = answers(found)[topic, 0]["uncommitted"]
            assert [row[0] for row in rows[topic, 0]] == [row[0] for row in told if row[0] not in lost]
            assert not lost or server.says(f"{topic}-0: ")


@pytest.mark.corpora
def test_with_serve_clients_get_what_a_broker_hands_out(image: Callable[[str], Path]) -> None:
    """A broker of 4.3.1 skips what an object lacks without an error, and stands still where there is none."""
    found = situation(image, "damaged")
    skips = ["d-healthy", "d-log-cut", "d-log-cut-clean", "d-log-empty", "d-index-lies", "d-epochs-missing"]
    with serving(found, "--damaged", "serve") as server, Wire(server.port) as wire:
        rows = by_partition(with_librdkafka(server.bootstrap, skips, "read_uncommitted", None))
        for topic in skips:
            told = found.truth["served"][f"{topic}-0"]["read_uncommitted"]["offsets"]
            assert [row[0] for row in rows[topic, 0]] == told
        for topic in ("d-log-missing", "d-all-missing", "d-first-missing"):
            stands = found.truth["served"][f"{topic}-0"]["read_uncommitted"]["position"]
            assert wire.fetch(topic, stands)["errorCode"] == 56
            assert wire.fetch(topic, stands + 12)["errorCode"] == 0


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("topic", "first", "code"), [("d-log-missing", 36, 56), ("d-log-cut", 30, 2), ("d-log-flip", 21, 2)]
)
def test_with_stop_a_partition_ends_before_its_damage(
    image: Callable[[str], Path], topic: str, first: int, code: int
) -> None:
    """No record behind it is handed out as if there were none between."""
    found = situation(image, "damaged")
    with serving(found, "--damaged", "stop") as server, Wire(server.port) as wire:
        assert wire.fetch(topic, first - 1)["errorCode"] == 0
        assert wire.fetch(topic, first)["errorCode"] == code
        assert wire.fetch(topic, 60)["errorCode"] == 0


@pytest.mark.corpora
def test_the_state_at_a_time_ends_in_remote_storage(image: Callable[[str], Path]) -> None:
    """Its records are dated a second apart."""
    found = situation(image, "house")
    first = answers(found)["plain", 0]["uncommitted"][0][1]
    with serving(found, "--at-time", str(first + 50_000)) as server:
        rows = by_partition(with_librdkafka(server.bootstrap, ["plain"], "read_committed", None))["plain", 0]
    batch = rows[-1][0] + 1
    assert [row[0] for row in rows] == [*range(batch)]
    assert 40 < batch <= 50, "a batch with a later record is left out as a whole"


@pytest.mark.corpora
def test_a_tier_alone_is_served(image: Callable[[str], Path]) -> None:
    """The cluster is gone: consumers read what is in the bucket."""
    found = situation(image, "aiven-encrypted")
    with Serving("--remote", found.tier, *KEYS, "-t", "alpha") as server:
        rows = by_partition(with_librdkafka(server.bootstrap, ["alpha"], "read_uncommitted", None))
    told = answers(found)["alpha", 0]
    last = told["offsets"]["latest_tiered"]
    assert [row[0] for row in rows["alpha", 0]] == [row[0] for row in told["uncommitted"] if row[0] <= last]


@pytest.mark.corpora
def test_blocks_of_compressed_logs_are_kept(image: Callable[[str], Path]) -> None:
    """With a cache of one block, or of many, clients get the same."""
    found = situation(image, "aiven-zstd")
    told = answers(found)["alpha", 0]
    for size in ("1", "64MiB"):
        with serving(found, "--cache-size", size) as server:
            rows = by_partition(with_librdkafka(server.bootstrap, ["alpha"], "read_uncommitted", None))
        assert rows["alpha", 0] == [row[:4] for row in told["uncommitted"]]


def test_a_bucket_is_read_by_ranges_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that one client has read is in memory for the next one; requests that are refused are repeated."""
    data, tier = unpack(tmp_path)
    counts = []
    with s3_server() as url, proxied(url, refuse_every=7) as proxy:
        upload(url, tier, "tier")
        use(monkeypatch, proxy.url)
        with Serving(data, "--remote", "s3://tier") as server:
            for _ in range(2):
                rows = by_partition(with_librdkafka(server.bootstrap, ["fine", "short"], "read_committed", None))
                assert [row[0] for row in rows["fine", 0]] == [*range(110)]
                assert [row[0] for row in rows["short", 0]] == [*range(61, 110)]
                counts.append(sum(path.endswith(".log") for _, path, _ in proxy.seen))
        logs = [(path, headers) for _, path, headers in proxy.seen if path.endswith(".log")]
    assert counts[0] == counts[1]
    assert {"Range"} <= set.intersection(*({name.title() for name in headers} for _, headers in logs))
    assert len({path for path, _ in logs}) == 7
