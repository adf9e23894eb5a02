"""The rule that a topic's keys follow, and the causes of exceptions.

A rule's share is the part of the topic's different keys that are where it puts them; keys that are placed at random
agree with it by chance, one in as many as there are partitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klog.cluster.partitioners import NAME_OF_RULE, PARTITIONERS, RULES, partitioner
from klog.kernel import ANOTHER_RULE, GROWN, HASH_OF_RULE, NO_CAUSE, UNFRAMED, KeyPlaces

LEAST_SHARE: Final = 0.5
FEWEST_GROWN: Final = 20
GROWN_SHARE: Final = 0.9
"""If at least this share of the misplaced keys fits a smaller partition count, that count is reported."""
_DEVIATIONS: Final = 4
_MOST_EARLIER: Final = 3
_SAMPLE: Final = 20_000
_LOOKS: Final = 200_000_000
MURMUR2: Final = 0


class ListedKey(NamedTuple):
    """A misplaced key: its digest, its partition, the one that the rule gives, and why it may be there."""

    digest: int
    partition: int
    expected: int
    cause: str


class KeyJudgement(NamedTuple):
    """The judgement of a table.

    *keys*: different ones, not empty; *several*: those in several partitions.  *rule*: a place in `RULES`, None if the
    keys follow none; *share*: the greatest of all rules, None without keys; *counts*: for each rule the number of keys
    that are where it puts them.  The rest is about the keys that the rule puts elsewhere: *misplaced* and their records
    there; *causes*: the number of keys with each, by the kernel's numbers; *earlier*: numbers of partitions that the
    topic had before; *empty*: the partitions in which the empty key should not be, and why it may be there.
    *lacks_hash*: the table's digests do not have the rule's hash, and no cause is known.
    """

    keys: int
    several: int
    rule: int | None
    share: float | None
    counts: tuple[int, ...]
    misplaced: int = 0
    misplaced_records: int = 0
    causes: tuple[int, ...] = (0,) * (NO_CAUSE + 1)
    earlier: tuple[int, ...] = ()
    empty: Mapping[int, int] = {}  # never changed
    lacks_hash: bool = False

    @property
    def rule_name(self) -> str | None:
        """The rule as a partitioner's name."""
        return None if self.rule is None else NAME_OF_RULE[self.rule]

    @property
    def grown_from(self) -> dict[str, int]:
        """Misplaced keys by the number of partitions that explains their place."""
        return {str(count): self.causes[GROWN + i] for i, count in enumerate(self.earlier) if self.causes[GROWN + i]}

    @property
    def another_rule(self) -> dict[str, int]:
        """Misplaced keys by the name of another rule that explains their place."""
        found = {NAME_OF_RULE[rule]: self.causes[ANOTHER_RULE + rule] for rule in range(len(RULES))}
        return {name: keys for name, keys in found.items() if keys}

    @property
    def unframed(self) -> int:
        """Misplaced keys whose place the rule explains without the five bytes of a schema's id."""
        return self.causes[UNFRAMED]

    @property
    def unexplained(self) -> int:
        """Misplaced keys with none of these causes."""
        return self.causes[NO_CAUSE]

    def cause_name(self, cause: int) -> str:
        """Return the words for a cause."""
        if cause < ANOTHER_RULE:
            return f"grown_from {self.earlier[cause - GROWN]}"
        if cause < UNFRAMED:
            return f"another_rule {NAME_OF_RULE[cause - ANOTHER_RULE]}"
        return "unframed" if cause == UNFRAMED else "none"

    def listed(self, table: KeyPlaces, most: int) -> list[ListedKey]:
        """Return up to *most* misplaced keys of the judged *table*, those without a cause first, the same each time."""
        if self.misplaced == bool(self.empty):
            return []  # the table was not judged: the empty key is not in it
        return [
            ListedKey(digest, partition, expected, self.cause_name(cause))
            for cause, partition, expected, digest in table.listed(most)
        ]


def rule_counts(table: KeyPlaces) -> tuple[int, ...]:
    """Return for each rule the number of keys whose place it explains."""
    sets = list(enumerate(table.places_by_rules))
    return tuple(sum(count for rules, count in sets if rules >> rule & 1) for rule in range(len(RULES)))


def leading_hash(table: KeyPlaces) -> int:
    """Return the hash of the rule that explains most keys, in the form for `KeyPlaces`."""
    counts = rule_counts(table)
    return HASH_OF_RULE[max(range(len(RULES)), key=lambda rule: (counts[rule], -rule))]


def judge(table: KeyPlaces, empty: Mapping[int, int], min_keys: int) -> KeyJudgement:
    """Return the judgement of a filled *table*, which is changed by that.

    *empty*: records with an empty key, by partition.  *min_keys*: with fewer different keys no rule is named.
    """
    counts, keys = rule_counts(table), table.keys
    best = max(range(len(RULES)), key=lambda rule: (counts[rule], -rule))
    share = counts[best] / keys if keys else None
    found = KeyJudgement(keys, table.several, None, share, counts)
    if share is None or keys < min_keys or not _beats_chance(share, keys, table.partitions):
        return found
    found = found._replace(rule=best)
    wrong = sum(count for rules, count in enumerate(table.places_by_rules) if not rules >> best & 1)
    if wrong:
        if HASH_OF_RULE[best] != table.hashed_by:
            return found._replace(lacks_hash=True)
        earlier = _earlier_counts(table, best, wrong)
        causes = table.judge(best, earlier, _others(table, best))
        records = sum(count for rules, count in enumerate(table.records_by_rules) if not rules >> best & 1)
        found = found._replace(
            misplaced=sum(causes[1:]), misplaced_records=records, causes=(0, *causes[1:]), earlier=earlier
        )
    return _with_empty(found, table.partitions, empty)


def _beats_chance(share: float, keys: int, partitions: int) -> bool:
    """Whether a share proves that keys follow the rule: half of them do, and more than would by chance."""
    chance = 1 / partitions
    return share >= LEAST_SHARE and share > chance + _DEVIATIONS * math.sqrt(chance * (1 - chance) / keys)


def _earlier_counts(table: KeyPlaces, rule: int, wrong: int) -> tuple[int, ...]:
    """Return the numbers of partitions that the topic had before, as far as the *wrong* places show them; mostly one or
    none.

    A second or third number is looked for only if the first ones leave too many of the places unexplained.
    """
    if wrong < FEWEST_GROWN:
        return ()
    most = min(_SAMPLE, max(_LOOKS // table.partitions, 1000))
    chosen: tuple[int, ...] = ()
    while len(chosen) < _MOST_EARLIER:
        counts = table.earlier_counts(rule, chosen, most)
        best = max(range(len(counts)), key=lambda count: (counts[count], count))
        if counts[best] < FEWEST_GROWN * GROWN_SHARE:
            break
        chosen += (best,)
        if table.explained(rule, chosen) >= GROWN_SHARE * wrong:
            return chosen
    return ()


def _others(table: KeyPlaces, rule: int) -> tuple[int, ...]:
    """Return the other rules, first the one that explains most of the misplaced keys."""
    sets = [(rules, count) for rules, count in enumerate(table.places_by_rules) if not rules >> rule & 1]
    explained = [sum(count for rules, count in sets if rules >> other & 1) for other in range(len(RULES))]
    return tuple(sorted(set(range(len(RULES))) - {rule}, key=lambda other: (-explained[other], other)))


def _with_empty(found: KeyJudgement, partitions: int, empty: Mapping[int, int]) -> KeyJudgement:
    """Add the empty key, if the rule has a partition for it."""
    usual = partitioner(NAME_OF_RULE[found.rule or 0])
    expected = usual.partition(b"", partitions)
    wrong = {number: records for number, records in empty.items() if expected is not None and number != expected}
    if not wrong:
        return found
    causes = {number: _empty_cause(number, partitions, found.earlier, usual.rule) for number in wrong}
    counts = list(found.causes)
    counts[max(causes.values())] += 1
    return found._replace(
        misplaced=found.misplaced + 1,
        misplaced_records=found.misplaced_records + sum(wrong.values()),
        causes=tuple(counts),
        empty=causes,
    )


def _empty_cause(number: int, partitions: int, earlier: Iterable[int], rule: int) -> int:
    usual = partitioner(NAME_OF_RULE[rule])
    for i, count in enumerate(earlier):
        if usual.partition(b"", count) == number:
            return GROWN + i
    others = (one.rule for one in PARTITIONERS if one.rule != rule and one.partition(b"", partitions) == number)
    return next((ANOTHER_RULE + other for other in others), NO_CAUSE)
