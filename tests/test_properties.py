"""Whatever is written is read back, and whatever is broken is said to be: klog against the plain decoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from klog.formats.codec import CodecError, Decompressor
from klog.formats.damage import Damage
from klog.log.segment import Batch, Segment

from tests.brokers.kafka import DumpTool
from tests.conftest import Ran
from tests.oracles.plain import compress, decode, decompress, dump_text, encode, json_lines, mutate, shapes, streams
from tests.oracles.plain.decompress import LIMIT
from tests.oracles.plain.encode import Record
from tests.support.examples import examples

QUICK = examples(60)
BASE = 1000
OFFSETS = range(BASE, BASE + 2**31)

# logs to be written

texts = st.one_of(st.none(), st.binary(max_size=40), st.text(max_size=20).map(str.encode))
headers = st.lists(st.tuples(st.one_of(st.binary(max_size=9), st.text(max_size=9).map(str.encode)), texts), max_size=4)
timestamps = st.one_of(st.integers(-1, 2**41), st.integers(0, 2**62))
producers = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 32767), st.integers(0, 2**31 - 1)),
)


@st.composite
def records(draw: st.DrawFn, first: int) -> list[Record]:
    """Records with offsets from *first* on, not all of them consecutive."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        found.append(Record(first, draw(timestamps), draw(texts), draw(texts), tuple(draw(headers))))
        first += draw(st.sampled_from((1, 1, 1, 2, 1000)))
    return found


@st.composite
def entries(draw: st.DrawFn, first: int) -> tuple[bytes, int]:
    """A batch or message set that begins at offset *first* or after, and the offset that follows it."""
    content = draw(records(first))
    magic = draw(st.sampled_from((2, 2, 2, 2, 1, 0)))
    append_time = draw(st.one_of(st.none(), st.integers(0, 2**41)))
    if magic < 2:
        codec = draw(st.sampled_from(compress.CODECS[1:4]))
        return encode.wrapper(content, magic, codec, append_time_ms=append_time if magic else None), content[
            -1
        ].offset + 1
    if draw(st.integers(0, 9)) == 0:
        return encode.empty_batch(first, first + 3, max_timestamp=5), first + 4
    if draw(st.integers(0, 9)) == 0:
        end = encode.marker(
            first, commit=draw(st.booleans()), timestamp=9, producer_id=7, producer_epoch=1, coordinator_epoch=3
        )
        return end, first + 1
    last = content[-1].offset + draw(st.sampled_from((0, 0, 5)))
    data = encode.batch(
        content,
        codec=draw(st.sampled_from(compress.CODECS)),
        base_offset=first,
        last_offset=last,
        append_time_ms=append_time,
        delete_horizon_ms=draw(st.one_of(st.none(), st.integers(0, 2**41))),
        leader_epoch=draw(st.sampled_from((-1, 0, 7, 2**31 - 1))),
        transactional=draw(st.booleans()),
        producer=draw(producers),
    )
    return data, last + 1


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """A segment that begins at offset BASE."""
    data, offset = b"", BASE
    for _ in range(draw(st.integers(1, 5))):
        entry, offset = draw(entries(offset + draw(st.sampled_from((0, 0, 3)))))
        data += entry
    return data


@pytest.fixture
def path(tmp_path: Path) -> Path:
    partition = tmp_path / "orders-3"
    partition.mkdir()
    return partition / f"{BASE:020}.log"


# what klog makes of them


def facts_of_klog(batch: Batch) -> tuple[object, ...]:
    # The first offset of a wrapper is inside it.
    wrapper = batch.magic < 2 and batch.codec != "none"
    return (
        batch.position, batch.size, batch.magic, batch.codec, batch.crc,
        batch.last_offset if wrapper else batch.base_offset, batch.last_offset, batch.max_timestamp,
        batch.timestamp_type, None if batch.magic < 2 else batch.records_count, batch.leader_epoch, batch.producer_id,
        batch.producer_epoch, batch.base_sequence, batch.is_transactional, batch.is_control, batch.delete_horizon_ms,
    )  # fmt: skip


def facts_of_plain(batch: decode.Batch) -> tuple[object, ...]:
    codec = decode.CODECS[batch.codec] if batch.codec <= 4 else f"unknown ({batch.codec})"
    return (
        batch.position, batch.size, batch.magic, codec, batch.crc, batch.base_offset, batch.last_offset,
        batch.max_timestamp, batch.timestamp_type if batch.magic else None, batch.count, batch.leader_epoch,
        batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional, batch.control,
        batch.delete_horizon_ms,
    )  # fmt: skip


def read(path: Path, data: bytes) -> list[Batch | Damage]:
    path.write_bytes(data)
    return list(Segment(str(path)).batches())


def rows(batch: Batch) -> tuple[list[tuple[object, ...]], Damage | None]:
    """Return the records as tuples, and the damage that ended them."""
    found: list[tuple[object, ...]] = []
    for record in batch.records():
        if isinstance(record, Damage):
            return found, record
        found.append((record.offset, record.timestamp, record.key, record.value, record.headers, record.sequence))
    return found, None


def plain_rows(batch: decode.Batch) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for r in batch.records]


def entries_of(data: bytes) -> list[bytes]:
    """Return the entries of a log that is whole."""
    return [data[part.position : part.position + (part.size or 0)] for part in decode.scan(data)]


def intact(data: bytes) -> Iterator[decode.Batch]:
    """Yield the batches of a log that is whole."""
    for part in decode.scan(data):
        assert isinstance(part, decode.Batch)
        yield part


def survivors(whole: list[bytes], broken: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the entries of the log that damage has spared, with their positions."""
    for entry in whole:
        at = broken.find(entry)
        while at >= 0 and decode.entry_damage(entry, 0) is None:
            yield at, entry
            at = broken.find(entry, at + 1)


def assert_right(found: list[Batch | Damage], broken: bytes, whole: list[bytes]) -> None:
    """Nothing is made up, nothing is read otherwise than by the plain decoder, and what damage has spared is found.

    *whole*: the entries that were there before the damage.  One that stands inside another, found one is part of that.
    """
    end = 0
    covered: set[int] = set()
    for part in found:
        if isinstance(part, Damage):
            continue
        assert part.position >= end, "batches overlap"
        end = part.position + part.size
        assert decode.entry_damage(broken, part.position) is None, f"a batch whose CRC does not match: {part}"
        batch = decode.read_entry(broken[part.position : end], part.position, LIMIT)
        assert facts_of_klog(part) == facts_of_plain(batch)
        read_rows, damage = rows(part)
        assert read_rows == plain_rows(batch)[: len(read_rows)]
        assert (damage is None) == (batch.fault is None), f"{damage} against {batch.fault}"
        if damage is None:
            assert len(read_rows) == len(batch.records)
        covered.update(range(part.position, end))
    missed = [at for at, _ in survivors(whole, broken) if at not in covered]
    assert not missed, f"intact, and not found: {missed}"


@QUICK
@given(data=logs())
def test_what_is_written_is_read_back(path: Path, data: bytes) -> None:
    """Every field of every batch and record, through the library."""
    found = read(path, data)
    assert all(isinstance(part, Batch) for part in found), found
    assert_right(found, data, entries_of(data))


@QUICK
@given(data=logs())
def test_json_lines_say_all_of_it(klog: Callable[..., Ran], path: Path, data: bytes) -> None:
    """Byte for byte what an independent renderer makes of an independent decoder's records."""
    path.write_bytes(data)
    done = klog("dump", "--output", "jsonl", path)
    expected = [line for batch in intact(data) for line in json_lines.record_lines(batch, "orders", 3)]
    assert (done.exit_code, done.stderr) == (0, b"")
    assert [line.decode() for line in done.stdout.splitlines()] == expected


@QUICK
@given(data=logs(), seed=st.integers(0, 2**32))
def test_any_damage_gives_damage_and_nothing_intact_is_missed(path: Path, data: bytes, seed: int) -> None:
    """Flips, cuts, inserts, zeros: no exception, no invented record, and no batch lost that could be read."""
    chance, whole = Random(seed), entries_of(data)
    for _ in range(8):
        broken = mutate.mutate(data, chance, chance.choice((1, 1, 2, 4)))
        assert_right(read(path, broken), broken, whole)


@QUICK
@given(data=logs(), seed=st.integers(0, 2**32))
def test_what_is_broken_behind_a_good_checksum(path: Path, data: bytes, seed: int) -> None:
    """A writer's mistake: the CRC holds, and the same records are read or refused."""
    chance, whole = Random(seed), entries_of(data)
    for _ in range(8):
        number = chance.randrange(len(whole))
        worse = mutate.mutate_inside(whole[number], chance, chance.choice((1, 1, 2)))
        parts = [*whole[:number], worse, *whole[number + 1 :]]
        broken = b"".join(parts)
        assert_right(read(path, broken), broken, parts)


def _by_batch(lines: list[dict[str, object]]) -> dict[int, list[dict[str, object]]]:
    found: dict[int, list[dict[str, object]]] = {}
    for line in lines:
        found.setdefault(int(str(line["position"])), []).append(line)
    return found


@QUICK
@given(data=logs(), seed=st.integers(0, 2**32), inside=st.booleans())
def test_json_lines_of_a_broken_log(klog: Callable[..., Ran], path: Path, data: bytes, seed: int, inside: bool) -> None:
    """Every line is JSON; the records of each intact batch are all there, once; damage is told on both streams."""
    chance, whole = Random(seed), entries_of(data)
    if inside:
        whole[0] = mutate.mutate_inside(whole[0], chance)
    broken = mutate.mutate(b"".join(whole), chance, chance.choice((0, 1, 2)) if inside else 1)
    path.write_bytes(broken)
    done = klog("dump", "--output", "jsonl", path)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    damages = [line for line in lines if "damage" in line]
    printed = _by_batch([line for line in lines if "damage" not in line])
    assert done.exit_code == (4 if damages else 0)
    assert len(done.stderr.splitlines()) == len(damages)
    for position, shown in printed.items():
        assert decode.entry_damage(broken, position) is None, "records of a batch whose CRC does not match"
        (batch, *_) = decode.scan(broken[position:])
        assert isinstance(batch, decode.Batch)
        batch = replace(batch, position=position)
        expected = [json_lines.record_object(batch, record, "orders", 3) for record in batch.records]
        assert shown == (expected if batch.fault is None else expected[: len(shown)])
    for at, entry in survivors(whole, broken):
        batch = decode.read_entry(entry, at, LIMIT)
        assert at in printed or not batch.records or batch.fault or any(at > position for position in printed)


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_streams_are_read_and_refused_alike(seed: int) -> None:
    """Framings that Kafka's readers take are taken, to the same bytes, and others are an error, never anything else."""
    functions = Decompressor(LIMIT).functions
    for stream in streams.broken_streams(Random(seed), 100):
        try:
            ours: bytes | None = bytes(functions[stream.codec](memoryview(stream.data), stream.magic))
        except CodecError:
            ours = None
        try:
            plain: bytes | None = decompress.decompress(stream.codec, stream.data, magic=stream.magic)
        except (decompress.BadStreamError, decompress.TooLargeError):
            plain = None
        # isal takes sets of codes that zlib refuses (the checksum holds all the same), and refuses a broken header of a
        # later member, which Java takes for garbage behind the first.
        lenient = stream.codec == 1 and (plain is None or (ours is None and b"\x1f\x8b\x08" in stream.data[1:]))
        assert lenient or ours == plain, f"codec {stream.codec}, magic {stream.magic}: {stream.data.hex()}"


# Java's text


@pytest.mark.kafka
def test_text_that_is_no_utf_8_is_printed_as_java_does(
    klog: Callable[..., Ran], dump_tool: DumpTool, tmp_path: Path
) -> None:
    """Keys and payloads are bytes; Java puts U+FFFD where they are no UTF-8, by rules of its own."""
    chance = Random(7)
    telling = bytes(
        (0x41, 0x7F, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF)
    )
    values = [bytes(chance.choices(telling, k=chance.randrange(1, 9))) for _ in range(6000)]
    values += [bytes((first, second, third)) for first in telling for second in telling for third in telling]
    data = b"".join(
        encode.batch([Record(at + i, shapes.MS, None, value) for i, value in enumerate(values[at : at + 500])])
        for at in range(0, len(values), 500)
    )
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    flags = ("--print-data-log", "--files", str(path))
    expected = dump_tool.run(*flags).stdout
    assert "\n".join(dump_text.lines(data)).encode() == expected.partition(b"offset: 0\n")[2].rstrip(b"\n")
    assert klog("dump", *flags).stdout == expected


# the files beside a log


def beside(log: bytes) -> dict[str, bytes]:
    """Return the indexes and the snapshot that fit *log*, by their suffix."""
    batches = list(intact(log))
    offsets = encode.offset_entries(BASE, [(batch.last_offset, batch.position) for batch in batches[1:]])
    times = encode.time_entries(BASE, [(1000 * i, batch.last_offset) for i, batch in enumerate(batches)])
    aborted = encode.aborted_entries(
        [(7, batch.base_offset, batch.last_offset, batch.last_offset + 1) for batch in batches]
    )
    producers = [encode.Producer(i, 1, 5, BASE + i, 2, 9, 3, -1 if i % 2 else BASE) for i in range(4)]
    return {"index": offsets, "timeindex": times, "txnindex": aborted, "snapshot": encode.snapshot(producers)}


@QUICK
@given(data=logs(), seed=st.integers(0, 2**32))
def test_broken_files_beside_a_log_are_told(klog: Callable[..., Ran], path: Path, data: bytes, seed: int) -> None:
    """Whatever is in an index or a snapshot: lines, perhaps a word about what is wrong, and never an exception."""
    chance = Random(seed)
    path.write_bytes(mutate.mutate(data, chance, chance.choice((0, 0, 1))))
    written = []
    for suffix, content in beside(data).items():
        if suffix == "snapshot" and chance.random() < 0.5 and len(content) > 20:
            body = mutate.mutate(content[6:], chance)
            content = content[:2] + crc32c(body).to_bytes(4, "big") + body
        else:
            content = mutate.mutate(content, chance, chance.choice((0, 1, 2)))
        written.append(path.with_suffix(f".{suffix}"))
        written[-1].write_bytes(content)
    for file in written:
        text = klog("dump", file)
        assert text.exit_code in (0, 4)
        assert text.stdout.startswith(b"Dumping ")
        lines = klog("dump", "--output", "jsonl", file)
        assert lines.exit_code in (0, 4)
        assert all(isinstance(json.loads(line), dict) for line in lines.stdout.splitlines())
    assert klog("describe", path.parent).exit_code in (0, 4)
