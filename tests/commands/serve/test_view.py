"""A disk as clients see it: the answers of a broker on it, and deliberate differences."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import UsageError
from klog.commands.serve.view import NO_ID, ServeOptions, Topic, View
from klog.data_dir.partition_identity import IdentityChoice, IdentityError
from klog.formats.error_codes import ErrorCode
from klog.partition.fetch import FetchResult
from klog.partition.transactions.isolation import Isolation

from tests.brokers import clients
from tests.brokers.kafka import NEWEST, Cluster
from tests.brokers.raw import Answer, Raw
from tests.commands.dump.test_isolation import abort, commit, data
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch
from tests.support.lookup_logs import MS, batches_of, write_segment

MODERN = FIXTURES / "modern"
COMMITTED: Isolation = "read_committed"


def content(fetched: FetchResult) -> bytes:
    """Return the bytes of the pieces."""
    found = b""
    for piece in fetched.pieces:
        with open(piece.path, "rb") as file:
            file.seek(piece.position)
            found += file.read(piece.size)
    return found


# as a broker answers


def asked(view: View, topic: Topic, index: int, chance: Random) -> list[int]:
    """Return offsets to ask for: at the ends, beyond them, and anywhere."""
    seen = view.partition(topic.name, index)
    assert seen is not None
    start, end = seen.log_start_offset, seen.high_watermark
    return sorted({-1, 0, start - 1, start, end - 1, end, end + 1, *(chance.randrange(end + 1) for _ in range(10))})


def answer(view: View, topic: str, index: int, offset: int, limit: int, committed: bool) -> Answer:
    """Return a broker's answer, in the form of this view."""
    seen = view.partition(topic, index)
    assert seen is not None
    got = seen.fetch(offset, limit, isolation=COMMITTED if committed else "read_uncommitted", partial=True)
    ends = got.high_watermark, got.last_stable_offset, got.log_start_offset
    aborted = tuple((one.producer_id, one.first_offset) for one in got.aborted)
    return Answer(int(got.error), *ends, aborted if committed and not got.error else None, content(got))


def make_examples(bootstrap: str) -> None:
    """Send the two documented examples: five batches of one 1 KB record, and one of 1 KB and 2 KB."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    clients.make(bootstrap, [NewTopic("five", 1, 1), NewTopic("pair", 1, 1)])
    producer = Producer({**settings, "linger.ms": 0})
    for _ in range(5):
        producer.produce("five", b"v" * 1024, partition=0)
        producer.flush()
    together = Producer({**settings, "linger.ms": 500})
    together.produce("pair", b"a" * 1024, partition=0)
    together.produce("pair", b"b" * 2048, partition=0)
    together.flush()


def _await_leaders(broker: Raw) -> None:
    until = time.monotonic() + 60
    for topic in View.open([str(MODERN)]).topics.values():
        for index in topic.indexes:
            while broker.fetch(topic.name, [(index, 0, 0)])[0].error > ErrorCode.OFFSET_OUT_OF_RANGE:
                assert time.monotonic() < until
                time.sleep(0.1)


@pytest.mark.kafka
def test_answers_are_a_brokers_byte_for_byte(tmp_path: Path) -> None:
    """Offsets, errors, aborted transactions and the records themselves, cut where a broker cuts."""
    writable_copy(MODERN, tmp_path / "data")
    with Cluster(NEWEST, tmp_path) as cluster, Raw(cluster.bootstrap) as broker:
        make_examples(cluster.bootstrap)
        _await_leaders(broker)
        view = View.open([str(cluster.data)], ServeOptions(open_transactions="hide", damaged="serve"))
        checked = View.open([str(cluster.data)], ServeOptions(open_transactions="hide", damaged="skip"))
        assert any("a broker holds" in line for line in view.notes)
        chance, count = Random(8), 0
        for topic in view.topics.values():
            if topic.name == "tx-open":
                continue  # the coordinator ends it sooner or later
            for index in topic.indexes:
                for offset in asked(view, topic, index, chance):
                    for limit in (0, 10, 500, 3500, 20_000, 1 << 20):
                        for committed in (False, True):
                            (theirs,) = broker.fetch(topic.name, [(index, offset, limit)], committed=committed)
                            ours = answer(view, topic.name, index, offset, limit, committed)
                            assert ours._replace(aborted=ours.aborted or None) == theirs._replace(
                                aborted=theirs.aborted or None
                            ), (topic.name, index, offset, limit, committed)
                            assert answer(checked, topic.name, index, offset, limit, committed) == ours
                            count += 1
                _offsets_are_the_same(broker, view, topic.name, index, chance)
        assert count > 2000
        assert [len(broker.fetch(*one)[0].records) for one in (("five", [(0, 0, 3500)]), ("pair", [(0, 1, 10)]))] == [
            3500,
            3151,
        ]


def _offsets_are_the_same(broker: Raw, view: View, topic: str, index: int, chance: Random) -> None:
    seen = view.partition(topic, index)
    assert seen is not None
    times = [-1, -2, -3, -4, 2**60, *(1_750_000_000_000 + chance.randrange(50_000) for _ in range(6))]
    for timestamp in times:
        theirs = broker.list_offset(topic, index, timestamp)
        if (topic, index) == ("trimmed", 0) and theirs[0] < 0:
            continue  # a broker looks into one segment only
        assert seen.list_offset(timestamp) == theirs, (topic, index, timestamp)
    for epoch in range(-1, 7):
        assert seen.epoch_end(epoch) == broker.epoch_end(topic, index, epoch), (topic, index, epoch)


@pytest.mark.kafka
def test_an_open_transaction_comes_to_what_the_coordinator_makes_of_it(tmp_path: Path) -> None:
    """A broker that starts on this disk aborts it once it is overdue: consumers then see the same as here at once."""
    writable_copy(MODERN, tmp_path / "data")
    view = View.open([str(MODERN)])
    ours = view.partition("tx-open", 0)
    assert ours is not None
    got = ours.fetch(0, 1 << 20, isolation=COMMITTED)
    with Cluster(NEWEST, tmp_path) as cluster, Raw(cluster.bootstrap) as broker:
        until = time.monotonic() + 60
        while True:
            (theirs,) = broker.fetch("tx-open", [(0, 0, 1 << 20)], committed=True)
            ended = not theirs.error and theirs.last_stable_offset == theirs.high_watermark
            if ended or time.monotonic() > until:
                break
            time.sleep(0.5)
    assert theirs.aborted == tuple((one.producer_id, one.first_offset) for one in got.aborted)
    assert theirs.records[: got.size] == content(got)
    assert theirs.high_watermark == ours.high_watermark + 1  # the marker


# transactions


def log(folder: Path, base: int, *batches: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020}.log").write_bytes(b"".join(batches))


def aborted(view: View, topic: str, offset: int = 0, limit: int = 1 << 20) -> tuple[int, list[tuple[int, int]]]:
    """Return the bytes of a read_committed fetch, and its list of aborted transactions."""
    seen = view.partition(topic, 0)
    assert seen is not None
    got = seen.fetch(offset, limit, isolation=COMMITTED)
    return got.size, [(one.producer_id, one.first_offset) for one in got.aborted]


def test_aborts_are_found_in_the_log_where_their_index_is_gone(tmp_path: Path) -> None:
    """A broker shows the data of aborted transactions as good then, in silence."""
    first = [data(0, 5), data(5, 5, producer=7), abort(10, 7), data(11, 4, producer=8)]
    log(tmp_path / "t-0", 0, *first)
    log(tmp_path / "t-0", 15, data(15, 5), data(20, 5, producer=9), abort(25, 8), commit(26, 9))
    (tmp_path / "t-0" / f"{27:020}.snapshot").write_bytes(encode.snapshot([]))  # a reader that starts here has none
    view = View.open([str(tmp_path / "t-0")])
    assert aborted(view, "t") == (sum(map(len, first)), [(7, 5), (8, 11)])
    assert aborted(view, "t", 15)[1] == [(8, 11)]  # its marker is behind 15, and a broker's index would agree
    assert aborted(view, "t", 26)[1] == []
    assert aborted(View.open([str(tmp_path / "t-0")], ServeOptions(damaged="serve")), "t", limit=1)[1] == []


def test_open_transactions_count_as_aborted_or_hide_what_follows(tmp_path: Path) -> None:
    """Their end will never be written: to wait, as a broker would, is to lose everything behind them."""
    batches = [data(0, 5), data(5, 5, producer=7), data(10, 5)]
    log(tmp_path / "t-0", 0, *batches)
    view = View.open([str(tmp_path / "t-0")])
    assert aborted(view, "t") == (sum(map(len, batches)), [(7, 5)])
    assert [line for line in view.take_messages() if "transaction" in line] == [
        "t-0: the open transaction of producer 7 from offset 5 on counts as aborted"
    ]
    hidden = View.open([str(tmp_path / "t-0")], ServeOptions(open_transactions="hide"))
    assert aborted(hidden, "t") == (len(batches[0]), [])
    seen = hidden.partition("t", 0)
    assert seen is not None
    got = seen.fetch(5, 100, isolation=COMMITTED)
    assert (got.error, got.last_stable_offset, seen.high_watermark) == (ErrorCode.NONE, 5, 15)
    assert seen.list_offset(-1, COMMITTED)[0] == 5


def transaction(producer: int, status: int, partitions: Sequence[tuple[str, int]], offset: int) -> bytes:
    """Return a batch with a record of `__transaction_state`, of version 0."""
    key = struct.pack(">hh", 0, 3) + b"app"
    topics = b"".join(
        struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">ii", 1, number) for topic, number in partitions
    )
    value = struct.pack(">hqhib", 0, producer, 0, 60_000, status)
    value += struct.pack(">i", len(partitions)) + topics + struct.pack(">qq", MS, MS)
    return batch([Record(offset, MS, key, value)])


@pytest.mark.parametrize(
    ("status", "named", "counts"),
    [(1, "t", False), (2, "t", True), (2, "other", False), (3, "t", False), (4, None, True), (5, None, False)],
)
def test_what_the_coordinator_had_decided_holds(tmp_path: Path, status: int, named: str | None, counts: bool) -> None:
    """A transaction that was to be committed only lacks its markers here: to drop its data would be loss."""
    log(tmp_path / "t-0", 0, data(0, 5), data(5, 5, producer=7), data(10, 5))
    earlier = transaction(7, 1, [("t", 0)], 0)
    log(tmp_path / "__transaction_state-0", 0, earlier, transaction(7, status, [(named, 0)] if named else [], 1))
    for end in ("abort", "hide"):
        view = View.open([str(tmp_path)], ServeOptions(open_transactions=end))  # type: ignore[arg-type]
        size, left_out = aborted(view, "t")
        assert left_out == ([] if counts or end == "hide" else [(7, 5)])
        assert (size == len(data(0, 5) + data(5, 5, producer=7) + data(10, 5))) == (counts or end == "abort")


# where logs end


def test_the_end_is_the_logs_or_the_checkpointed_one(tmp_path: Path) -> None:
    """With one replica the log's end is the high watermark; with more the cautious stop at the replicated end."""
    write_segment(tmp_path / "t-0", 0, batches_of([(0, 4, 300), (5, 9, 300), (10, 14, 300)]))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 7\n")
    view = View.open([str(tmp_path)])
    seen = view.partition("t", 0)
    assert seen is not None
    assert (seen.high_watermark, seen.fetch(0, 1000).size) == (15, 900)
    assert view.take_messages() == ["t-0: served to its end 15; the checkpointed high watermark is 8 lower"]
    seen = View.open([str(tmp_path)], ServeOptions(end="checkpoint")).partition("t", 0)
    assert seen is not None
    got = seen.fetch(0, 1000, isolation=COMMITTED)
    assert (seen.high_watermark, got.last_stable_offset, got.size) == (7, 7, 300)
    assert seen.fetch(0, 1000, to_log_end=True).size == 900


def test_a_disk_can_be_shown_as_it_was(tmp_path: Path) -> None:
    """Before somebody deleted everything at noon; whole batches, since no client is handed a part of one."""
    write_segment(tmp_path / "t-0", 0, batches_of([(0, 4, 300), (5, 9, 300), (10, 14, 300)]))
    ends = {}
    for until in (MS, MS + 1, MS + 5, MS + 7, MS + 14, MS + 15):
        seen = View.open([str(tmp_path / "t-0")], ServeOptions(until_ms=until)).partition("t", 0)
        assert seen is not None
        ends[until - MS] = seen.high_watermark, seen.fetch(0, 1000).size, seen.list_offset(-1)[0]
    assert ends == {
        0: (0, 0, 0),
        1: (0, 0, 0),
        5: (5, 300, 5),
        7: (5, 300, 5),
        14: (10, 600, 10),
        15: (15, 900, 15),
    }


def test_what_was_undecided_then_is_so_when_shown_as_it_was(tmp_path: Path) -> None:
    """A later commit is no commit yet."""
    of = {"transactional": True, "producer": (7, 0, 0)}
    first = batch([Record(0, MS, None, b"a")], **of)  # type: ignore[arg-type]
    ended = encode.marker(1, commit=True, timestamp=MS + 9, producer_id=7, producer_epoch=0, coordinator_epoch=0)
    log(tmp_path / "t-0", 0, first, ended)
    assert aborted(View.open([str(tmp_path / "t-0")]), "t") == (len(first + ended), [])
    assert aborted(View.open([str(tmp_path / "t-0")], ServeOptions(until_ms=MS + 5)), "t") == (len(first), [(7, 0)])


def test_a_time_is_looked_for_in_later_segments_too(tmp_path: Path) -> None:
    """A broker looks into the first that should have it, and answers "none" when compaction removed the record."""
    writable_copy(MODERN / "trimmed-0", tmp_path / "trimmed-0")
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 137\n")
    seen = View.open([str(tmp_path)]).partition("trimmed", 0)
    assert seen is not None
    assert seen.list_offset(0) == (137, 1_750_000_001_370, 2)
    assert seen.list_offset(-5) == (-1, -1, -1)


# present and missing parts


def test_names_ids_and_settings_come_from_the_disk() -> None:
    """Clients that knew the cluster find it again; internal topics only show on request."""
    view = View.open([str(MODERN)])
    assert (view.cluster_id, view.node_id, view.log_dirs) == ("fXeC61JOQie3q2pvw8VSPQ", 1, (str(MODERN),))
    topic = view.topics["dense"]
    assert (topic.id, topic.partitions, topic.internal) == ("0th_lxGPRO6d5axyYpruSw", 1, False)
    assert topic.configs["index.interval.bytes"] == "1"
    assert view.topic_by_id(topic.id) is topic
    assert view.topic_by_id(NO_ID) is None
    assert "__consumer_offsets" not in view.topics
    internal = View.open([str(MODERN)], ServeOptions(internal=True)).topics
    assert internal["__consumer_offsets"].internal
    assert "__cluster_metadata" not in internal
    assert list(View.open([str(MODERN)], ServeOptions(topics=("__consumer_offsets",))).topics) == ["__consumer_offsets"]
    assert set(View.open([str(MODERN)], ServeOptions(topics=("t*",))).topics) == {"trimmed", "tx", "tx-open"}
    with pytest.raises(UsageError, match="no such topic here; did you mean dense"):
        View.open([str(MODERN)], ServeOptions(topics=("dens",)))


def test_partitions_on_other_disks_are_empty_leaderless_or_left_out() -> None:
    """Some clients hang over a hole in the numbers, others lose a partition: so by default there is none."""
    view = View.open([str(MODERN)])
    missing = view.partition("plain", 0)
    assert missing is not None
    assert (missing.log_dir, missing.high_watermark, missing.leader_epoch) == (None, 0, -1)
    assert missing.fetch(0, 100) == FetchResult(ErrorCode.NONE, 0, 0, 0)
    assert missing.fetch(1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [missing.list_offset(timestamp) for timestamp in (-1, -2, 0)] == [(0, -1, -1), (0, -1, -1), (-1, -1, -1)]
    assert missing.epoch_end(0) == (-1, -1)
    assert "5 partitions are not on this disk, and shown empty: empty-1, empty-2, plain-0" in view.notes[1]
    assert view.notes[2].startswith("9 topics are not on this disk, and not listed: gzip-broker, ")
    offline, omitted = (View.open([str(MODERN)], ServeOptions(missing=how)) for how in ("offline", "omit"))  # type: ignore[arg-type]
    assert (list(offline.topics["plain"].indexes), offline.partition("plain", 0)) == ([0, 1, 2], None)
    assert (list(omitted.topics["plain"].indexes), omitted.partition("plain", 0)) == ([1, 2], None)
    assert all(one.partition("plain", 3) is None for one in (view, offline, omitted))
    assert view.partition("nothing", 0) is None


def test_of_several_disks_the_best_copy_is_shown(tmp_path: Path) -> None:
    """The newest leader's, and of those the longest: a longer log of a deposed leader has records that the cluster
    dropped."""
    for name, batches, epoch in (("b1", 3, 4), ("b2", 5, 3), ("b3", 4, 4)):
        write_segment_in = tmp_path / name / "t-0"
        write_segment_in.parent.mkdir()
        write_segment(write_segment_in, 0, batches_of((i, i, 200) for i in range(batches)))
        (write_segment_in / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    view = View.open([str(tmp_path / name) for name in ("b1", "b2", "b3")])
    seen = view.partition("t", 0)
    assert seen is not None
    assert (seen.log_dir, seen.high_watermark, seen.leader_epoch) == (str(tmp_path / "b3"), 4, 4)


IDS = {name: name * 21 + "Q" for name in "abou"}


def broker(log_dir: Path, cluster: str | None, topics: Mapping[str, str | None]) -> str:
    """A log dir of *cluster* with partition 0 of *topics*, each with its id."""
    for topic, topic_id in topics.items():
        folder = log_dir / f"{topic}-0"
        folder.parent.mkdir(exist_ok=True)
        write_segment(folder, 0, batches_of([(0, 0, 200)]))
        if topic_id is not None:
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster is not None:
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    return str(log_dir)


def test_disks_of_two_clusters_are_not_mixed(tmp_path: Path) -> None:
    """Topics of the same name would become one."""
    paths = [broker(tmp_path / name, IDS[name], {"t": IDS[name]}) for name in ("a", "b")]
    described = [f"topic {IDS[name]} of cluster {IDS[name]} in {tmp_path}/{name}/t-0" for name in "ab"]
    expected = f"t-0 is two things: {', '.join(described)}; --cluster ID or --topic-id ID chooses"
    with pytest.raises(IdentityError, match=expected):
        View.open(paths)
    for name, path in zip("ab", paths, strict=True):
        view = View.open(paths, ServeOptions(identity=IdentityChoice([IDS[name]])))
        assert (view.cluster_id, view.log_dirs, view.topics["t"].id) == (IDS[name], (path,), IDS[name])
        assert view.notes[1] == "1 of 2 partition directories are of other ids: left out"
    with pytest.raises(UsageError, match="no cluster has the id c"):
        View.open(paths, ServeOptions(identity=IdentityChoice(["c"])))


def test_a_server_is_of_one_cluster(tmp_path: Path) -> None:
    """Even where no name comes twice: clients ask for the cluster's id."""
    paths = [broker(tmp_path / name, IDS[name], {name: IDS[name]}) for name in ("a", "b")]
    with pytest.raises(IdentityError, match="one at a time; --cluster ID chooses"):
        View.open(paths)
    assert list(View.open(paths, ServeOptions(identity=IdentityChoice([IDS["b"]]))).topics) == ["b"]


def test_of_a_topic_that_was_created_again_one_is_served(tmp_path: Path) -> None:
    """Kafka's own topics stay, or groups would begin as new."""
    own = {"__consumer_offsets": IDS["o"]}
    paths = [broker(tmp_path / name, "c", {"t": IDS[name], **own}) for name in ("a", "b")]
    with pytest.raises(IdentityError, match="t-0 is two things"):
        View.open(paths)
    view = View.open(paths, ServeOptions(internal=True, identity=IdentityChoice(topic_ids=[IDS["b"]])))
    assert {name: len(topic.copies[0]) for name, topic in view.topics.items()} == {"__consumer_offsets": 2, "t": 1}
    assert view.topics["t"].id == IDS["b"]
    assert view.notes[1] == "1 of 4 partition directories are of other ids: left out"


def test_what_is_not_served_need_not_be_one_thing(tmp_path: Path) -> None:
    paths = [broker(tmp_path / name, "c", {"t": IDS[name], "u": IDS["u"]}) for name in ("a", "b")]
    assert list(View.open(paths, ServeOptions(topics=("u",))).topics) == ["u"]


def test_old_disks_without_ids_are_copies_by_name(tmp_path: Path) -> None:
    """Kafka before 2.8, and no meta.properties beside it."""
    paths = [broker(tmp_path / name, None, {"t": None}) for name in ("a", "b")]
    with pytest.raises(IdentityError, match=r"t-0 exists 2 times, .*--by-name"):
        View.open(paths)
    view = View.open(paths, ServeOptions(identity=IdentityChoice(by_name=True)))
    assert len(view.topics["t"].copies[0]) == 2


def test_groups_go_on_where_they_were() -> None:
    """Committed offsets of any protocol; groups whose offsets were all deleted are gone."""
    view = View.open([str(MODERN)])
    assert view.committed("loses-one") == {
        ("plain", 0): (20, -1, "\0"),
        ("plain", 1): (93, -1, "\0"),
        ("plain", 2): (87, -1, "\0"),
    }
    assert view.committed("nobody") == {}
    assert "loses-all" not in view.groups
    assert set(view.groups) >= {"classic", "next-generation", "sticky"}


def offset_commit(offset: int, committed: int | None, *, producer: int = -1) -> bytes:
    """Return a batch with a commit of group g for t-0, or its tombstone."""
    key = struct.pack(">hh", 1, 1) + b"g" + struct.pack(">h", 1) + b"t" + struct.pack(">i", 0)
    value = None if committed is None else struct.pack(">hqih", 3, committed, 5, 1) + b"m" + struct.pack(">q", MS)
    of = {"transactional": True, "producer": (producer, 0, 0)} if producer >= 0 else {}
    return batch([Record(offset, MS, key, value)], **of)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([offset_commit(0, 10), offset_commit(1, 20)], 20),
        ([offset_commit(0, 10), offset_commit(1, None)], None),
        ([offset_commit(0, 10), offset_commit(1, 20, producer=7)], 10),
        ([offset_commit(0, 10), offset_commit(1, 20, producer=7), abort(2, 7)], 10),
        ([offset_commit(0, 10), offset_commit(1, 20, producer=7), commit(2, 7)], 20),
        ([offset_commit(0, 10), offset_commit(1, 20, producer=7), offset_commit(2, 15), commit(3, 7)], 15),
    ],
)
def test_commits_within_transactions_count_once_these_are_committed(
    tmp_path: Path, batches: list[bytes], expected: int | None
) -> None:
    """The group coordinator reads its log in the same way: otherwise a stream processor would skip records.

    The later record of a plain commit and one of a transaction counts, whenever the marker follows.
    """
    log(tmp_path / "__consumer_offsets-0", 0, *batches)
    found = View.open([str(tmp_path)]).committed("g")
    assert found == ({} if expected is None else {("t", 0): (expected, 5, "m")})


# damage, and many at once


def test_what_is_left_out_is_told_once_and_summed_up() -> None:
    """An operator has to know the records that clients miss: as much as a check finds."""
    view = View.open([str(FIXTURES / "crash" / "flip-middle")])
    seen = view.partition("torn", 0)
    assert seen is not None
    for _ in range(2):
        offset = 0
        while (got := seen.fetch(offset, 1 << 20)).size:
            assert got.next_offset is not None
            offset = got.next_offset
    lines = [line for line in view.take_messages() if "left out" in line]
    assert len(lines) == 1
    assert "bytes behind offset" in lines[0]
    assert view.take_messages() == []
    (total,) = view.summary()
    checked = run_klog("verify", FIXTURES / "crash" / "flip-middle" / "torn-0").stdout.decode()
    assert total == "left out: 1 damaged stretch, 721 bytes, in 1 partition"
    assert "bad CRC" in lines[0]
    assert "721" in lines[0]
    assert "CRC" in checked


def test_many_threads_open_one_view() -> None:
    """Two hundred clients start at once: each partition is opened once, and all receive the same."""
    view = View.open([str(MODERN)])
    found: list[object] = []

    def ask() -> None:
        try:
            rows = []
            for topic in view.topics.values():
                for index in topic.indexes:
                    seen = view.partition(topic.name, index)
                    assert seen is not None
                    got = seen.fetch(seen.log_start_offset, 5000, isolation=COMMITTED)
                    rows.append((topic.name, index, got, seen.list_offset(-3), seen.leader_epoch))
            found.append((rows, view.groups))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one == found[0] for one in found)
    assert isinstance(found[0], tuple)


def test_nothing_is_touched(tmp_path: Path) -> None:
    """The disk is evidence: no file may be made, changed or even marked as read."""
    folder = writable_copy(MODERN, tmp_path / "data")

    def state() -> list[tuple[str, int, int, int]]:
        paths = sorted(folder.rglob("*"))
        return [(str(path), path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino) for path in paths]

    before = state()
    view = View.open([str(folder)], ServeOptions(internal=True))
    for topic in view.topics.values():
        for index in topic.indexes:
            seen = view.partition(topic.name, index)
            assert seen is not None
            seen.fetch(seen.log_start_offset, 1 << 20, isolation=COMMITTED)
            seen.list_offset(-3)
    assert view.groups
    view.close()
    assert state() == before


def test_a_piece_stays_open_while_it_is_sent(tmp_path: Path) -> None:
    """Whatever else is opened meanwhile."""
    write_segment(tmp_path / "t-0", 0, batches_of([(0, 4, 300)]))
    view = View.open([str(tmp_path / "t-0")])
    seen = view.partition("t", 0)
    assert seen is not None
    (piece,) = seen.fetch(0, 1000).pieces
    source = view.opened(piece.path)
    view.close()
    assert source.read(piece.position, piece.size) == content(seen.fetch(0, 1000))
