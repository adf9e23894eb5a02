"""The state of producers: the effects of batches and markers on it, and their events.  The rules are Kafka 4.3.1's."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import ABORTED_TXN
from klog.formats.producer_snapshot import Producer, Snapshot, read_snapshot, write_snapshot
from klog.kernel import crc32c
from klog.partition.transactions.markers import (
    STOPS_BROKER,
    CompletedTxn,
    ProducerAnomaly,
    ProducerAnomalyKind,
)
from klog.partition.transactions.producer_replay import apply_window, replay
from klog.partition.transactions.producer_state import (
    PRODUCER_ID_EXPIRATION_MS,
    Event,
    OngoingTxns,
    ProducerState,
    differences,
)

from tests.conftest import FIXTURES
from tests.kernel.windows import scanned
from tests.oracles.plain import encode
from tests.oracles.plain.encode import BatchHeader, Record
from tests.oracles.producer_compare import Comparison
from tests.support.examples import examples

MAX = 2**31 - 1
FILE = "orders-0/00000000000000000000.log"


def data(
    offset: int, sequence: int, count: int = 1, *, pid: int = 1, epoch: int = 0, txn: bool = False, ms: int = 100
) -> bytes:
    """A batch of *count* records from *offset* on."""
    records = [Record(offset + n, ms, None, b"v") for n in range(count)]
    return encode.batch(records, transactional=txn, producer=(pid, epoch, sequence))


def marker(
    offset: int, *, pid: int = 1, epoch: int = 0, commit: bool = False, coordinator: int = 7, ms: int = 200
) -> bytes:
    return encode.marker(
        offset, commit=commit, timestamp=ms, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator
    )


def control(key: bytes | None, value: bytes | None, codec: str = "none") -> bytes:
    """A control batch at offset 9 that is a marker only as far as *key* and *value* go."""
    record = Record(9, 200, key, value)
    return encode.batch([record], transactional=True, control=True, producer=(1, 0, -1), codec=codec)


def applied(*batches: bytes, state: ProducerState | None = None) -> tuple[ProducerState, list[Event]]:
    state = state or ProducerState()
    return state, apply_window(state, scanned(b"".join(batches)), FILE)


def kinds(*batches: bytes, state: ProducerState | None = None) -> list[str]:
    """The names of the irregularities that the batches bring."""
    return [event.kind.name for event in applied(*batches, state=state)[1] if isinstance(event, ProducerAnomaly)]


def only(state: ProducerState) -> Producer:
    (producer,) = state.snapshot()
    return producer


# the worked example

EXAMPLE = (
    data(0, 0, 3, pid=1001, txn=True),
    data(3, 0, 2, pid=1002, txn=True),
    data(5, 0, 1, pid=1003, ms=115),
    data(6, 3, 2, pid=1001, txn=True),
    marker(8, pid=1001, ms=130),
    marker(9, pid=1002, ms=140, commit=True),
    data(10, 2, 2, pid=1002, txn=True, ms=150),
)
EXAMPLE_SNAPSHOT = bytes.fromhex(
    "00019aa5f0f600000003"
    "00000000000003e90000000000040000000000000007000000010000000000000082"
    "00000007ffffffffffffffff"
    "00000000000003ea000000000003000000000000000b000000010000000000000096"
    "00000007000000000000000a"
    "00000000000003eb0000000000000000000000000005000000000000000000000073"
    "ffffffffffffffffffffffff"
)
EMPTY_SNAPSHOT = bytes.fromhex("000148674bc700000000")
ONE_SNAPSHOT = bytes.fromhex(
    "0001bafd7f530000000100000000000003e80003000000290000000000000411000000090000018bcfe5687b00000007ffffffffffffffff"
)


def test_the_worked_example_ends_in_its_snapshot_byte_for_byte() -> None:
    state, events = applied(*EXAMPLE)
    assert write_snapshot(state.snapshot(), crc32c) == EXAMPLE_SNAPSHOT
    assert [event[:5] for event in events] == [(1001, 0, 8, True, 3), (1002, 3, 9, False, 10)]
    assert events[0].place.offset == 8
    assert events[0].place.file == FILE
    assert (state.end, state.last_stable_offset, state.ongoing.all()) == (12, 10, ((10, 1002),))


def test_the_last_stable_offset_waits_for_the_earliest_open_transaction() -> None:
    state, stable = ProducerState(), []
    for batch in EXAMPLE:
        applied(batch, state=state)
        stable.append(state.last_stable_offset)
    assert stable == [0, 0, 0, 0, 3, 10, 10]


@pytest.mark.parametrize("content", [EMPTY_SNAPSHOT, ONE_SNAPSHOT, EXAMPLE_SNAPSHOT])
def test_a_snapshot_loaded_and_written_again_is_the_same(content: bytes) -> None:
    snapshot = read_snapshot(content, crc32c)
    state = ProducerState.load(snapshot, 12)
    assert write_snapshot(state.snapshot(), crc32c) == content
    assert state.end == 12


def test_an_index_entry_is_made_of_an_abort_only() -> None:
    """34 bytes as a broker writes them: the first offset may be far below the segment."""
    state = ProducerState(1042)
    _, (abort, commit) = applied(
        data(1042, 0, pid=1001, txn=True), marker(1050, pid=1001),
        data(1051, 1, pid=1001, txn=True), marker(1052, pid=1001, commit=True), state=state,
    )  # fmt: skip
    assert isinstance(abort, CompletedTxn)
    assert abort.index_entry is not None
    assert ABORTED_TXN.write(*abort.index_entry).hex() == (
        "000000000000000003e90000000000000412000000000000041a000000000000041b"
    )
    assert isinstance(commit, CompletedTxn)
    assert commit.index_entry is None


# sequences


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (data(20, 20, 10), []),
        (data(20, 10, 10), ["DUPLICATE_SEQUENCE"]),
        (data(20, 0, 10), ["DUPLICATE_SEQUENCE"]),
        (data(20, 10, 5), ["SEQUENCE_BACKWARDS"]),
        (data(20, 30, 10), ["SEQUENCE_GAP"]),
        (data(20, 0, 5, epoch=1), []),
        (data(20, 5, 5, epoch=1), ["FIRST_SEQUENCE_NOT_ZERO"]),
        (data(20, 57, 4, pid=2), []),
        (data(20, -1, 4), ["NO_SEQUENCE"]),
    ],
)
def test_a_batch_out_of_sequence_is_told_and_taken(batch: bytes, said: list[str]) -> None:
    """A follower appends the leader's batches: the state continues from the odd batch."""
    state, _ = applied(data(0, 0, 10), data(10, 10, 10))
    assert kinds(batch, state=state) == said
    assert max(producer.last_offset for producer in state.snapshot()) == state.end - 1


def test_a_gap_says_what_was_expected_and_how_long_the_producer_was_idle() -> None:
    _, (gap,) = applied(data(0, 0, 10), data(10, 40, ms=1100))
    assert isinstance(gap, ProducerAnomaly)
    assert (gap.expected, gap.found, gap.idle_ms, gap.producer_id, gap.producer_epoch) == (10, 40, 1000, 1, 0)
    assert str(gap).endswith("(offset 10): producer 1 epoch 0: sequence gap: 40, expected 10")
    assert gap.place == (FILE, len(data(0, 0, 10)), 10)


def test_sequences_wrap_after_the_largest() -> None:
    """MAX-1, MAX, 0, 1: the next one is 2."""
    state, events = applied(data(0, MAX - 1, 4), data(4, 2, 1))
    assert events == []
    assert only(state).last_sequence == 2
    assert kinds(data(0, MAX, 1), data(1, 0, 1)) == []
    assert kinds(data(0, MAX, 1), data(1, 5, 1)) == ["SEQUENCE_GAP"]
    assert kinds(data(0, 5, 1), data(1, MAX, 1)) == ["SEQUENCE_BACKWARDS"]


def test_five_batches_are_remembered_one_after_a_snapshot() -> None:
    """A retry that a leader knew as a duplicate before its restart is only out of order afterwards."""
    six = [data(n, n) for n in range(6)]
    assert kinds(*six, data(6, 1)) == ["DUPLICATE_SEQUENCE"]
    assert kinds(*six, data(6, 0)) == ["SEQUENCE_BACKWARDS"]
    state, _ = applied(*six)
    assert len(state.producers[1].batches) == 5
    reloaded = ProducerState.load(Snapshot(state.snapshot()), state.end)
    assert kinds(data(6, 1), state=reloaded) == ["SEQUENCE_BACKWARDS"]


def test_a_lower_epoch_is_taken_and_forgets_the_higher() -> None:
    state, events = applied(data(0, 0, epoch=3), data(1, 7, epoch=2))
    assert [event.kind for event in events if isinstance(event, ProducerAnomaly)] == [
        ProducerAnomalyKind.EPOCH_BACKWARDS
    ]
    assert only(state)[:4] == (1, 2, 7, 1)
    assert len(state.producers[1].batches) == 1


def test_damaged_numbers_still_fit_a_snapshot() -> None:
    """A batch whose checksum matches can contain anything: nothing of it may raise, then or when it is written."""
    rng = random.Random(1)
    extremes = (0, 1, -1, -2, 2**31 - 1, -(2**31))
    for _ in range(300):
        header = BatchHeader(
            base_offset=rng.choice((0, 2**63 - 1, -(2**63))), last_offset_delta=rng.choice(extremes),
            producer_id=rng.choice((0, 2**63 - 1)), producer_epoch=rng.choice((0, -1, -(2**15))),
            base_sequence=rng.choice(extremes), transactional=rng.random() < 0.5, max_timestamp=-(2**63),
        )  # fmt: skip
        last = marker(2**63 - 1, pid=header.producer_id, epoch=-5, coordinator=-(2**31))
        state, events = applied(encode.raw_batch(header, b""), data(5, 5), last)
        write_snapshot(state.snapshot(), crc32c)
        for event in events:
            assert str(event)
            if isinstance(event, CompletedTxn) and event.index_entry:
                ABORTED_TXN.write(*event.index_entry)


# transactions


def test_a_marker_of_the_next_epoch_ends_the_transaction() -> None:
    """Transactions v2: every transaction has its epoch, the marker carries the next, sequences begin anew."""
    batches = (
        data(0, 0, 2, txn=True),
        marker(2, epoch=1, commit=True),
        data(3, 0, txn=True, epoch=1),
        marker(4, epoch=2),
    )
    state, events = applied(*batches)
    assert [event[:5] for event in events] == [(1, 0, 2, False, 3), (1, 3, 4, True, 5)]
    assert only(state) == Producer(1, 2, -1, -1, 0, 200, 7, -1)
    assert kinds(data(5, 1, epoch=2), state=state) == ["FIRST_SEQUENCE_NOT_ZERO"]


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    assert kinds(data(0, 0, 2, txn=True), marker(2), data(3, 2, txn=True)) == []
    assert kinds(data(0, 0, 2, txn=True), marker(2), data(3, 3, txn=True)) == ["SEQUENCE_GAP"]


def test_what_came_before_a_first_marker_is_not_guessed() -> None:
    """Retention took the data and left the marker: the producer's next sequence may be any."""
    assert kinds(marker(0), data(1, 57, txn=True)) == ["MARKER_WITHOUT_TXN"]
    state, _ = applied(marker(0))
    assert kinds(data(1, 57), state=ProducerState.load(Snapshot(state.snapshot()), 1)) == []


def test_an_empty_transaction_leaves_no_trace_but_epochs_and_time() -> None:
    state, events = applied(marker(0))
    assert [event.kind.name for event in events if isinstance(event, ProducerAnomaly)] == ["MARKER_WITHOUT_TXN"]
    assert only(state) == Producer(1, 0, -1, -1, 0, 200, 7, -1)
    assert state.last_stable_offset == state.end == 1


def test_a_plain_batch_inside_a_transaction_is_what_a_broker_dies_of() -> None:
    state, events = applied(data(0, 0, txn=True), data(1, 1))
    (event,) = events
    assert isinstance(event, ProducerAnomaly)
    assert event.kind is ProducerAnomalyKind.NOT_TRANSACTIONAL
    assert event.kind in STOPS_BROKER
    assert event.expected == 0
    assert state.ongoing.all() == ((0, 1),)


def test_epochs_of_a_marker_that_go_backwards_are_told() -> None:
    batches = data(0, 0, txn=True, epoch=2), marker(1, epoch=2, coordinator=9)
    assert kinds(*batches, data(2, 1, txn=True, epoch=2), marker(3, epoch=1, coordinator=8)) == [
        "EPOCH_BACKWARDS",
        "COORDINATOR_EPOCH_BACKWARDS",
    ]


def test_of_two_transactions_with_one_first_offset_the_second_cannot_end() -> None:
    """Overlapping batches, the work of a flipped base offset: Kafka's map of open transactions has room for one."""
    batches = data(0, 0, txn=True), data(0, 0, pid=2, txn=True), marker(5), marker(6, pid=2)
    assert kinds(*batches) == ["TXN_NOT_STARTED"]


def test_open_transactions_keep_their_order() -> None:
    """They are in any order in a snapshot."""
    ongoing = OngoingTxns()
    for first, producer_id in ((30, 3), (10, 1), (20, 2), (10, 4)):
        ongoing.begin(first, producer_id)
    assert ongoing.all() == ((10, 4), (20, 2), (30, 3))
    assert (ongoing.first_offset(), ongoing.first_offset(besides=4), len(ongoing)) == (10, 20, 3)
    assert [ongoing.end(20), ongoing.end(20), ongoing.end(99)] == [True, False, False]
    assert ongoing.first_offset(besides=None) == 10


# control batches


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 7), None),
        (struct.pack(">hh", 9, 1) + b"more", struct.pack(">hi", 9, 7) + b"more", None),
        (struct.pack(">hh", 0, 9), struct.pack(">hi", 0, 7), "UNKNOWN_MARKER_TYPE"),
        (struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 7), "UNKNOWN_MARKER_TYPE"),
        (struct.pack(">hh", -1, 0), struct.pack(">hi", 0, 7), "INVALID_MARKER"),
        (b"\0\0\0", struct.pack(">hi", 0, 7), "INVALID_MARKER"),
        (struct.pack(">hh", 0, 0), struct.pack(">hi", -1, 7), "INVALID_MARKER"),
        (struct.pack(">hh", 0, 0), b"\0\0\0\0\0", "UNREADABLE_MARKER"),
        (struct.pack(">hh", 0, 0), b"", "UNREADABLE_MARKER"),
        (struct.pack(">hh", 0, 0), None, "UNREADABLE_MARKER"),
        (None, struct.pack(">hi", 0, 7), "UNREADABLE_MARKER"),
    ],
)
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_is_no_marker_ends_no_transaction(
    key: bytes | None, value: bytes | None, said: str | None, codec: str
) -> None:
    """As Kafka takes them apart: exceptions that recovery survives, and others."""
    state, _ = applied(data(0, 0, txn=True))
    _, events = applied(control(key, value, codec), state=state)
    (event,) = events
    if said is None:
        assert isinstance(event, CompletedTxn)
        assert state.ongoing.all() == ()
        return
    assert isinstance(event, ProducerAnomaly)
    assert (event.kind.name, state.ongoing.all(), state.end) == (said, ((0, 1),), 10)
    assert event.kind in STOPS_BROKER
    assert event.detail


@pytest.mark.parametrize(
    ("count", "payload"), [(1, b"\x0e\0\0"), (-5, b""), (1, encode.record(key=b"\0\0\0\0") + b"!")]
)
def test_a_control_batch_with_a_broken_record_is_an_invalid_marker(count: int, payload: bytes) -> None:
    header = BatchHeader(count=count, control=True, transactional=True, producer_id=1, producer_epoch=0)
    assert kinds(encode.raw_batch(header, payload)) == ["INVALID_MARKER"]


@pytest.mark.parametrize(("codec", "said"), [("none", ["MARKER_WITHOUT_TXN"]), ("gzip", ["INVALID_MARKER"])])
def test_of_an_uncompressed_control_batch_only_the_first_record_is_read(codec: str, said: list[str]) -> None:
    """A compressed one is read whole: a broken record behind its marker counts."""
    first = encode.record(key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 7))
    number = encode.CODECS.index(codec)
    header = BatchHeader(count=2, control=True, codec=number, producer_id=1, producer_epoch=0)
    assert kinds(encode.raw_batch(header, encode.compress(codec, first + b"!"))) == said


def test_a_control_batch_that_cannot_be_decompressed_is_unreadable() -> None:
    header = BatchHeader(count=1, control=True, codec=1, producer_id=1, producer_epoch=0)
    state, (event,) = applied(encode.raw_batch(header, b"no gzip"))
    assert isinstance(event, ProducerAnomaly)
    assert event.kind is ProducerAnomalyKind.UNREADABLE_MARKER
    assert state.snapshot() == ()


def test_an_empty_control_batch_leaves_a_producer_of_whom_nothing_is_known() -> None:
    """A broker does the same: ProducerStateManager.update puts the entry in that nothing was appended to."""
    cleaned = encode.empty_batch(0, 0, producer=(5, 3, -1), transactional=True, control=True)
    state, events = applied(cleaned)
    assert events == []
    assert only(state) == Producer(5, -1, -1, -1, 0, -1, -1, -1)
    assert kinds(data(1, 44, pid=5, epoch=3), state=state) == []
    state, _ = applied(data(0, 0, pid=5, txn=True), cleaned)
    assert state.ongoing.all() == ((0, 5),)
    assert only(state).last_sequence == 0


# what else is in a log


def test_batches_without_a_producer_only_move_the_end() -> None:
    old = encode.message(3, 1, b"k", b"v", timestamp=5)
    state, events = applied(encode.batch([Record(n, 1) for n in range(3)]), old)
    assert (state.end, state.snapshot(), events) == (4, (), [])


def test_an_empty_batch_of_compaction_still_tells_the_last_sequence() -> None:
    state, events = applied(encode.empty_batch(10, 19, max_timestamp=5, producer=(77, 0, 20)))
    assert only(state) == Producer(77, 0, 29, 19, 9, 5, -1, -1)
    assert events == []


def test_offset_commits_of_transactions_have_no_sequence() -> None:
    """The group coordinator writes them: a last offset without a last sequence is legal."""
    state, events = applied(data(0, -1, 2, txn=True), data(2, -1, 1, txn=True), marker(3, commit=True))
    assert only(state) == Producer(1, 0, -1, 2, 0, 200, 7, -1)
    assert [event.kind.name for event in events if isinstance(event, ProducerAnomaly)] == ["NO_SEQUENCE"] * 2


def test_batches_whose_checksum_does_not_hold_count_for_nothing() -> None:
    flipped = bytearray(data(1, 1))
    flipped[-1] ^= 0xFF
    state, events = applied(data(0, 0), bytes(flipped))
    assert (state.end, only(state).last_offset, events) == (1, 0, [])


def test_a_marker_takes_the_time_of_the_append_where_the_topic_does() -> None:
    record = Record(1, 5, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7))
    batch = encode.batch([record], transactional=True, control=True, producer=(1, 0, -1), append_time_ms=900)
    state, _ = applied(batch)
    assert only(state).timestamp == 900


def test_idle_producers_expire_but_not_those_with_an_open_transaction() -> None:
    state, _ = applied(data(0, 0, pid=1, ms=0), data(1, 0, pid=2, txn=True, ms=0), data(2, 0, pid=3, ms=1))
    assert state.expire(PRODUCER_ID_EXPIRATION_MS - 1) == ()
    assert state.expire(PRODUCER_ID_EXPIRATION_MS) == (1,)
    assert state.expire(2**60, expiration_ms=10) == (3,)
    assert [producer.producer_id for producer in state.snapshot()] == [2]


def test_differences_compare_producers_whatever_their_order() -> None:
    a, b, c = (Producer(n, 0, 0, 0, 0, 0, -1, -1) for n in range(3))
    changed = b._replace(last_offset=5)
    assert differences((b, a), (a, changed, c)) == ((b, changed), (None, c))


# a partition


def partition(folder: Path, *segments: tuple[int, bytes]) -> Partition:
    for base, content in segments:
        (folder / f"{base:020}.log").write_bytes(content)
    return Partition(str(folder))


def test_replay_goes_on_from_where_the_state_is(tmp_path: Path) -> None:
    """In one go, or from snapshot to snapshot: the same transactions, each in the segment of its marker."""
    batches = b"".join(EXAMPLE[:4]), b"".join(EXAMPLE[4:6]), EXAMPLE[6]
    found = partition(tmp_path, *zip((0, 8, 10), batches, strict=True))
    whole = ProducerState()
    events = list(replay(whole, found.path, found.segments))
    state, steps = ProducerState(), []
    for end in (3, 5, 8, 9, 12):
        steps += list(replay(state, found.path, found.segments, end))
        assert state.end == end
    assert steps == events
    assert state.snapshot() == whole.snapshot()
    assert [Path(event.place.file).name[18:20] for event in events] == ["08", "08"]
    assert write_snapshot(whole.snapshot(), crc32c) == EXAMPLE_SNAPSHOT


def test_replay_ends_where_it_is_told_and_beyond_the_log_too(tmp_path: Path) -> None:
    found = partition(tmp_path, (0, b"".join(EXAMPLE)))
    state = ProducerState()
    assert len(list(replay(state, found.path, found.segments, 9))) == 1
    assert state.last_stable_offset == 3
    assert len(list(replay(state, found.path, found.segments, 100))) == 1
    assert (state.end, state.last_stable_offset) == (100, 10)
    for end in (100, 50, None):
        assert list(replay(ProducerState(12), found.path, found.segments, end)) == []
    state = ProducerState(12)
    assert list(replay(state, found.path, found.segments)) == []
    assert (state.end, state.snapshot()) == (12, ())


def test_a_batch_that_the_log_start_cuts_through_counts_whole(tmp_path: Path) -> None:
    """DeleteRecords moves the start into a batch; the broker reads from the batch that holds it."""
    found = partition(tmp_path, (0, data(0, 0, 10) + data(10, 10, 10)))
    state = ProducerState(15)
    assert list(replay(state, found.path, found.segments)) == []
    assert only(state) == Producer(1, 0, 19, 19, 9, 100, -1, -1)
    assert len(state.producers[1].batches) == 1


def test_replay_tells_damage_and_goes_on_behind_it(tmp_path: Path) -> None:
    flipped = bytearray(data(1, 1))
    flipped[-1] ^= 0xFF
    found = partition(tmp_path, (0, data(0, 0) + bytes(flipped) + data(2, 2)))
    state = ProducerState()
    damage, gap = replay(state, found.path, found.segments)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.BAD_CRC
    assert isinstance(gap, ProducerAnomaly)
    assert gap.kind is ProducerAnomalyKind.SEQUENCE_GAP
    assert state.end == 3


@pytest.mark.parametrize(
    "folder", ["modern", "legacy", "v39/data", "v39/data1", "compaction/before", "compaction/after"]
)
def test_replay_gives_what_the_broker_wrote(folder: str) -> None:
    comparison = Comparison()
    comparison.tree(FIXTURES / folder)
    assert comparison.unexplained == []
    assert comparison.snapshots > 2


def test_a_flipped_batch_makes_the_snapshot_behind_it_differ() -> None:
    """An invisible fault cannot be in its state: a difference, and the damage that explains it."""
    comparison = Comparison()
    comparison.tree(FIXTURES / "crash" / "flip-middle")
    assert comparison.damaged == 1
    assert {os.path.basename(line.split(": ")[0]) for line in comparison.unexplained} == {f"{364:020}.snapshot"}
    torn = Comparison()
    torn.tree(FIXTURES / "crash" / "torn-in-batch")
    assert (torn.damaged, torn.unexplained) == (1, [])


# any log


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches of a few producers as clients and coordinators write them, transactions of both versions."""
    epochs, sequences, opened = [0] * 4, [0] * 4, [False] * 4
    batches, offset = [], 0
    for _ in range(draw(st.integers(1, 40))):
        pid = draw(st.integers(0, 3))
        step = draw(st.sampled_from(("data", "data", "data", "end", "bump", "other")))
        if step == "other":
            batches.append(encode.batch([Record(offset, offset)]))
        elif step == "data":
            count = draw(st.integers(1, 3))
            txn = pid < 3
            opened[pid] |= txn
            batches.append(data(offset, sequences[pid], count, pid=pid, epoch=epochs[pid], txn=txn, ms=offset))
            sequences[pid] += count
            offset += count - 1
        elif step == "end" and pid < 3:
            if draw(st.booleans()):
                epochs[pid], sequences[pid] = epochs[pid] + 1, 0
            batches.append(marker(offset, pid=pid, epoch=epochs[pid], commit=draw(st.booleans()), ms=offset))
            opened[pid] = False
        elif not opened[pid]:
            epochs[pid], sequences[pid] = epochs[pid] + 1, 0
            continue
        else:
            continue
        offset += draw(st.integers(1, 3))
    return batches


@examples(300)
@given(logs(), st.data())
def test_a_snapshot_in_between_changes_nothing(batches: list[bytes], cut: st.DataObject) -> None:
    """Only the last batch of each producer survives it; transactions and the next snapshot are the same."""
    at_once, events = applied(*batches)
    middle = cut.draw(st.integers(0, len(batches)))
    state, before = applied(*batches[:middle])
    content = write_snapshot(state.snapshot(), crc32c)
    reloaded = ProducerState.load(read_snapshot(content, crc32c), state.end)
    _, after = applied(*batches[middle:], state=reloaded)
    assert reloaded.snapshot() == at_once.snapshot()
    assert reloaded.ongoing.all() == at_once.ongoing.all()
    ended = [event[:5] for event in before + after if isinstance(event, CompletedTxn)]
    assert ended == [event[:5] for event in events if isinstance(event, CompletedTxn)]
    assert reloaded.last_stable_offset == at_once.last_stable_offset
    told = [event.kind.name for event in events + before + after if isinstance(event, ProducerAnomaly)]
    assert set(told) <= {"MARKER_WITHOUT_TXN"}  # healthy logs have no other finding
