"""The partitioners of Kafka's clients: one table, the source of help, docs and checks.

    partitioner("java").partition(b"user-42", 12)

Each hashes a key's bytes as they are in the record, applies a rule to the hash and divides the result; the remainder is
the partition.  A random choice of a client has no answer here.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

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
    Partitioner("librdkafka", 1, "librdkafka by default (consistent_random) and what builds on it", "random", "random"),
    Partitioner("consistent", 1, "librdkafka's consistent", "hashed", "as an empty key"),
    Partitioner("fnv1a", 2, "librdkafka's fnv1a and fnv1a_random, Sarama", "hashed", "as an empty key", _SARAMA_NULLS),
    Partitioner("fnv1a-mask", 3, "Sarama's reference hash partitioner", "hashed", "random"),
    Partitioner("fnv1a-unsigned", 4, "franz-go's first SaramaHasher", "hashed", "random"),
    Partitioner("murmur2-unsigned", 5, "KafkaEx before 1.0", "hashed", "random"),
    Partitioner("murmur2-abs", 6, "partitioners of one's own that take abs() for the mask", "hashed", "random"),
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
