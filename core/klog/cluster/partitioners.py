"""The partitioners of Kafka's clients: one table, the source of help, docs and checks.

    partitioner("java").partition(b"user-42", 12)

Each hashes a key's bytes as they are in the record, applies a rule to the hash and divides the result; the remainder is
the partition.  A random choice of a client has no answer here.

A file has a key in each line, which ends with LF or CR LF, the last one perhaps with neither: a key that ends in CR
needs another form than text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import Final, Literal, NamedTuple

from klog.base.errors import UsageError
from klog.kernel import KEY_FORMS, KeyLines, read_key

RULES: Final = (
    "murmur2 & 0x7fffffff",
    "crc32",
    "abs(int32(fnv1a))",
    "fnv1a & 0x7fffffff",
    "fnv1a",
    "murmur2",
    "abs(int32(murmur2))",
)
"""The dividends: hashes are unsigned, int32 converts them to Java's int.  The place of a rule here is its number in the
kernel (`partitions.h`)."""
MOST_PARTITIONS: Final = 2**31 - 1

EmptyKey = Literal["hashed", "random"]
NullKey = Literal["as an empty key", "random"]


class Partitioner(NamedTuple):
    """The way in which clients place a key.

    *rule*: a place in `RULES`.  *clients*: those that use it, the first one by this very name or by default. *empty*,
    *null*: the first client's treatment of a key of no bytes, and of none.  *others*: clients that treat these
    differently, as a sentence; None if none do.
    """

    name: str
    rule: int
    clients: str
    empty: EmptyKey
    null: NullKey
    others: str | None = None

    def partition(self, key: bytes | None, partitions: int) -> int | None:
        """Return the partition of *key*, None if clients pick one at random.

        *partitions*: how many there are, from 1 to `MOST_PARTITIONS`.
        """
        from klog.kernel import key_partitions

        if key is None and self.null == "random":
            return None
        if not key and self.empty == "random":
            return None
        return key_partitions(key or b"", partitions)[self.rule]


_MIXED_NULLS: Final = "librdkafka's `murmur2` hashes a null key as an empty one"
_SARAMA_NULLS: Final = "Sarama and librdkafka's `fnv1a_random` pick at random for a null key"
PARTITIONERS: Final = (
    Partitioner(
        "java",
        0,
        "Java since 0.8.2, kafka-python, aiokafka, franz-go, librdkafka's murmur2 and murmur2_random",
        "hashed",
        "random",
        _MIXED_NULLS,
    ),
    Partitioner(
        "librdkafka", 1, "librdkafka by default (consistent_random) and clients based on it", "random", "random"
    ),
    Partitioner("consistent", 1, "librdkafka's consistent", "hashed", "as an empty key"),
    Partitioner("fnv1a", 2, "librdkafka's fnv1a and fnv1a_random, Sarama", "hashed", "as an empty key", _SARAMA_NULLS),
    Partitioner("fnv1a-mask", 3, "Sarama's reference hash partitioner", "hashed", "random"),
    Partitioner("fnv1a-unsigned", 4, "franz-go's first SaramaHasher", "hashed", "random"),
    Partitioner("murmur2-unsigned", 5, "KafkaEx before 1.0", "hashed", "random"),
    Partitioner("murmur2-abs", 6, "custom partitioners that use abs() instead of the mask", "hashed", "random"),
)
"""The usual ones first: where two agree on every key, the first is named."""
NAMES: Final = tuple(one.name for one in PARTITIONERS)
NAME_OF_RULE: Final = {rule: next(one.name for one in PARTITIONERS if one.rule == rule) for rule in range(len(RULES))}


def partitioner(name: str) -> Partitioner:
    """Return the partitioner *name*, one of `NAMES`."""
    return PARTITIONERS[NAMES.index(name)]


def table_rows() -> list[tuple[str, str, str, str, str]]:
    """Return a row of text for each partitioner: its name, its rule, its clients, an empty key, a null key."""
    return [(one.name, f"{RULES[one.rule]} % n", one.clients, one.empty, one.null) for one in PARTITIONERS]


MOST_KEY_BYTES: Final = 16 << 20
"""A longer line is refused, so that memory stays bounded; by default producers send a record of 1 MiB at most."""
_FIRST_BYTES: Final = 1 << 20
_EXPECTED: Final = {
    "hex": "pairs of hexadecimal digits",
    "base64": "base64 with its padding",
    "int32": "a number from -2147483648 to 2147483647",
    "int64": "a number from -9223372036854775808 to 9223372036854775807",
}
_SHOWN: Final = 60


def key_of(text: bytes, form: str, where: str) -> bytes:
    """Return the key that *text* represents in *form*, one of KEY_FORMS.  Raises UsageError with the place *where*."""
    key = read_key(text, KEY_FORMS.index(form))
    if key is None:
        raise _not_a_key(text, form, where)
    return key


def _not_a_key(text: bytes, form: str, where: str) -> UsageError:
    shown = text[:_SHOWN].decode("utf-8", "backslashreplace") + ("…" if len(text) > _SHOWN else "")
    return UsageError(f"{where}: {shown!r} is no {form}: expected {_EXPECTED[form]}")


def keys_in(file: BufferedReader, form: str, name: str) -> Iterator[bytes]:
    """Yield the keys of a file's lines.  *name*: of the file, for messages.  Raises UsageError, OSError."""
    number = 0
    while line := file.readline(MOST_KEY_BYTES + 3):
        number += 1
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(text) > MOST_KEY_BYTES:
            raise _too_long(name, number)
        yield key_of(text, form, f"{name}, line {number}")


def _too_long(name: str, number: int) -> UsageError:
    return UsageError(f"{name}, line {number}: longer than {MOST_KEY_BYTES >> 20} MiB")


def json_lines_of(partitioners: Sequence[Partitioner], partitions: int, form: str) -> KeyLines:
    """Return a formatter of JSON lines with keys in *form*, and their partitions of so many *partitions*."""
    members = []
    for number, one in enumerate(partitioners):
        name = ("," if number else "") + json.dumps(one.name) + ":"
        members.append((name.encode(), one.rule, one.partition(b"", partitions)))
    return KeyLines(partitions, members, KEY_FORMS.index(form))


def write_json_lines(
    file: BufferedReader, lines: KeyLines, form: str, name: str, write: Callable[[memoryview], object]
) -> None:
    """Write a line for each key of *file*.  *name*: of it, for messages.  Raises UsageError, OSError."""
    buffer, filled, last = bytearray(_FIRST_BYTES), 0, False
    while not last:
        if filled == len(buffer):
            buffer += bytes(min(filled, MOST_KEY_BYTES + 3 - filled))
        read = file.readinto1(memoryview(buffer)[filled:])
        last, filled, at = not read, filled + read, 0
        if filled > MOST_KEY_BYTES and len(_first_line(buffer, filled)) > MOST_KEY_BYTES:
            raise _too_long(name, lines.lines + 1)
        while True:
            with memoryview(buffer)[:filled] as data:
                at = lines.take(data, at, last)
            waiting = lines.output()
            if not len(waiting):
                break
            write(waiting)
            waiting.release()
            lines.flushed()
        if lines.bad:
            raise _not_a_key(_first_line(buffer[at:], filled - at), form, f"{name}, line {lines.lines + 1}")
        buffer[: filled - at] = buffer[at:filled]
        filled -= at


def _first_line(buffer: bytearray, filled: int) -> bytes:
    """Return the first line of the *filled* bytes of *buffer*, or its beginning."""
    end = buffer.find(b"\n", 0, filled)
    return bytes(buffer[: filled if end < 0 else end]).removesuffix(b"\r")
