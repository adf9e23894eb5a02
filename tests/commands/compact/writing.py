"""Random but reproducible batches of one partition: everything that producers may do and that matters to a cleaner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = CODECS[:4]
SECOND_MS, HOUR_MS = 1000, 3_600_000


@dataclass(frozen=True)
class Habits:
    """The records of one partition, and their frequencies: probabilities from 0 to 1, sizes in bytes."""

    keys: tuple[bytes, ...]
    codecs: tuple[str, ...]
    most_records: int
    """In one batch."""
    value_size: int
    null_key: float = 0.0
    tombstone: float = 0.0
    empty_value: float = 0.0
    headers: float = 0.0
    backwards: float = 0.0
    """Timestamps that go back, by up to two hours."""
    holes: float = 0.0
    """Batches as a compacted leader has them: records, first and last ones too, are missing."""
    jumps: tuple[int, ...] = ()
    """How many offsets may be left out between two batches."""
    idempotent: int = 0
    transactional: int = 0
    """How many producers of that kind."""
    bumps_epochs: bool = False
    """A transaction ends with its producer's next epoch, as brokers have it from 4.0 on."""
    append_time: bool = False
    magics: tuple[int, ...] = (2,)

    @property
    def batch_bytes(self) -> int:
        """More than any batch takes."""
        return 200 + self.most_records * (80 + max(map(len, self.keys)) + 2 * self.value_size)


def random_keys(random: Random) -> tuple[bytes, ...]:
    """Return the keys of a partition, few or many, short or long, alike or not."""
    count = random.choice((2, 10, 40, 40, 300))
    shape = random.choice(("word", "word", "binary", "prefix", "long"))
    shapes: dict[str, Callable[[int], bytes]] = {
        "word": lambda number: b"key-%d" % number,
        "binary": lambda number: random.randbytes(random.randrange(1, 24)),
        "prefix": lambda number: b"the same for all of them " * 4 + b"%d" % number,
        "long": lambda number: random.randbytes(4) * random.choice((1, 10, 500)),
    }
    keys = [shapes[shape](number) for number in range(count)]
    return (*keys, b"") if random.random() < 0.4 else tuple(keys)


def random_habits(random: Random) -> Habits:
    """Return the habits of a partition: most have a few of them, none has all."""

    def sometimes(*values: float) -> float:
        return random.choice(values) if random.random() < 0.5 else 0.0

    magics = random.choice(((2,),) * 6 + ((0,), (1,), (0, 1, 2), (1, 2)))
    producers = random.choice(("none", "idempotent", "transactional", "both")) if magics == (2,) else "none"
    codecs = CODECS if random.random() < 0.3 else (random.choice(CODECS),)
    jumps = random.choice(((), (), (1, 1000), (1, 2**31 - 2, 2**31 - 1, 2**31, 2**33)))
    return Habits(
        keys=random_keys(random),
        codecs=codecs,
        most_records=random.choice((1, 4, 30)),
        value_size=random.choice((8, 60, 60, 700)),
        null_key=sometimes(0.05, 0.4),
        tombstone=sometimes(0.1, 0.5),
        empty_value=sometimes(0.1),
        headers=sometimes(0.3),
        backwards=sometimes(0.3),
        holes=sometimes(0.2),
        jumps=jumps,
        idempotent=random.randrange(1, 4) if producers in ("idempotent", "both") else 0,
        transactional=random.randrange(1, 4) if producers in ("transactional", "both") else 0,
        bumps_epochs=random.random() < 0.5,
        append_time=random.random() < 0.15,
        magics=magics,
    )


@dataclass
class Producer:
    """One producer with numbered batches; *transactional* ones have a transaction open or not."""

    producer_id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


@dataclass
class Writer:
    """The next batches of a partition: offsets ascend, times are near *clock_ms*, transactions continue across
    calls."""

    random: Random
    habits: Habits
    clock_ms: int
    magic: int = 2
    next_offset: int = 0
    at_segment_start: bool = True
    """Perhaps: nothing was appended since a roll or a start that is known of."""
    leader_epoch: int = 0
    producers: list[Producer] = field(default_factory=list)

    def __post_init__(self) -> None:
        numbers = range(self.habits.idempotent + self.habits.transactional)
        self.producers = [Producer(1000 + n, transactional=n >= self.habits.idempotent) for n in numbers]

    def chunk(self, batches: int) -> list[bytes]:
        """Return some batches to be appended together, of old messages each as one; at times from a new leader."""
        if self.random.random() < 0.02:
            self.leader_epoch += self.random.randrange(1, 3)
        # A broker cannot append a batch too far from the base of a segment that is still empty.
        if self.habits.jumps and not self.at_segment_start and self.random.random() < 0.05:
            self.next_offset += self.random.choice(self.habits.jumps)
        self.at_segment_start = False
        return [batch for _ in range(batches) for batch in self._batches()]

    def settle(self, *, all_of_them: bool) -> list[bytes]:
        """Return markers that end transactions still open: all, or each with even chances."""
        ends = [p for p in self.producers if p.in_transaction and (all_of_them or self.random.random() < 0.5)]
        self.at_segment_start = self.at_segment_start and not ends
        return [self._end(producer) for producer in ends]

    def _batches(self) -> list[bytes]:
        return self._legacy() if self.magic < 2 else [self._batch()]

    def _batch(self) -> bytes:
        if not self.producers or self.random.random() < 0.3:
            return self._data((-1, -1, -1), transactional=False)
        producer = self.random.choice(self.producers)
        if not producer.transactional:
            return self._of(producer)
        chance = self.random.random()
        if producer.in_transaction:
            return self._end(producer) if chance < 0.3 else self._of(producer)
        # A coordinator may end a transaction in a partition that the producer named and never wrote to.
        return self._end(producer) if chance < 0.08 else self._of(producer)

    def _of(self, producer: Producer) -> bytes:
        if not producer.in_transaction and self.random.random() < 0.03:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        before = self.next_offset
        numbered = (producer.producer_id, producer.epoch, producer.sequence)
        data = self._data(numbered, transactional=producer.transactional)
        producer.sequence = producer.sequence + (self.next_offset - before) & 0x7FFFFFFF
        producer.in_transaction = producer.transactional
        return data

    def _end(self, producer: Producer) -> bytes:
        if self.habits.bumps_epochs:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer.in_transaction = False
        offset = self.next_offset
        self.next_offset += 1
        return encode.marker(
            offset,
            commit=self.random.random() < 0.5,
            timestamp=self.clock_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=self.leader_epoch,
            leader_epoch=self.leader_epoch,
        )

    def _data(self, producer: tuple[int, int, int], *, transactional: bool) -> bytes:
        records = self._records()
        base, last = records[0].offset, records[-1].offset
        if self.random.random() < self.habits.holes:
            records = self.random.sample(records, self.random.randrange(1, len(records) + 1))
            records.sort(key=lambda record: record.offset)
        return encode.batch(
            records,
            codec=self.random.choice(self.habits.codecs),
            base_offset=base,
            last_offset=last,
            append_time_ms=self.clock_ms if self.habits.append_time else None,
            leader_epoch=self.leader_epoch,
            transactional=transactional,
            producer=producer,
        )

    def _legacy(self) -> list[bytes]:
        records = self._records()
        codec = self.random.choice([codec for codec in self.habits.codecs if codec in LEGACY_CODECS] or ["none"])
        append_time_ms = self.clock_ms if self.habits.append_time and self.magic == 1 else None
        if codec != "none":
            return [encode.wrapper(records, self.magic, codec, append_time_ms=append_time_ms)]
        return [
            encode.message(
                record.offset,
                self.magic,
                record.key,
                record.value,
                timestamp=record.timestamp if append_time_ms is None else append_time_ms,
                attributes=0 if append_time_ms is None else 8,
            )
            for record in records
        ]

    def _records(self) -> list[Record]:
        count = self.random.randrange(1, self.habits.most_records + 1)
        first, self.next_offset = self.next_offset, self.next_offset + count
        return [self._record(offset) for offset in range(first, first + count)]

    def _record(self, offset: int) -> Record:
        chance, habits = self.random.random, self.habits
        self.clock_ms += self.random.choice((0, 1, 20))
        back_ms = self.random.randrange(2 * HOUR_MS) if chance() < habits.backwards else 0
        key = None if chance() < habits.null_key else self.random.choice(habits.keys)
        headers = (
            ((b"trace", self.random.randbytes(6)), (b"", None), (b"trace", b"")) if chance() < habits.headers else ()
        )
        return Record(offset, self.clock_ms - back_ms, key, self._value(), headers)

    def _value(self) -> bytes | None:
        chance = self.random.random()
        if chance < self.habits.tombstone:
            return None
        if chance < self.habits.tombstone + self.habits.empty_value:
            return b""
        size = self.random.randrange(1, self.habits.value_size * 2)
        # Half of it compresses, half does not.
        return self.random.randbytes(size // 2) + b"=" * (size - size // 2)
