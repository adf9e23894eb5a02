"""Topics whose keys are placed to order, and the expected answer of `klog keys check`, by plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.partitioning import plain
from tests.conftest import Ran, run_klog
from tests.oracles.plain.encode import Record, batch, message, wrapper

Placed = tuple[bytes | None, int]
RULES = [name for name in plain.RULES if name != "consistent"]
BATCH_RECORDS = 40
TIME_MS = 1_750_000_000_000


def write_topic(data: Path, name: str, placed: Iterable[Placed], *, codec: str = "none", magic: int = 2) -> Path:
    """Write records with these keys into these partitions of *data*; return it."""
    records: dict[int, list[Record]] = defaultdict(list)
    for key, partition in placed:
        offset = len(records[partition])
        records[partition].append(Record(offset, TIME_MS + offset, key, b"v%d" % offset))
    for partition, found in records.items():
        folder = data / f"{name}-{partition}"
        folder.mkdir(parents=True)
        groups = [found[at : at + BATCH_RECORDS] for at in range(0, len(found), BATCH_RECORDS)]
        content = b"".join(_encoded(group, codec, magic) for group in groups)
        (folder / f"{0:020d}.log").write_bytes(content)
    return data


def _encoded(records: Sequence[Record], codec: str, magic: int) -> bytes:
    if magic == 2:
        return batch(records, codec=codec)
    if codec != "none":
        return wrapper(records, magic, codec)
    return b"".join(message(one.offset, magic, one.key, one.value, timestamp=one.timestamp) for one in records)


def by_rule(name: str, keys: Iterable[bytes], partitions: int) -> list[Placed]:
    """Put each key where partitioner *name* puts it."""
    return [(key, plain.partition(name, key, partitions)) for key in keys]


def check(*arguments: str | Path, exit_code: int | None = None) -> dict[str, dict[str, Any]]:
    """Run the command; return its topics by name."""
    done = run(*arguments)
    if exit_code is not None:
        assert done.exit_code == exit_code, done
    return {row["topic"]: row for row in map(json.loads, done.stdout.splitlines())}


def run(*arguments: str | Path) -> Ran:
    return run_klog("keys", "check", *arguments, "--output", "jsonl", "--quiet")


def verdict(placed: Sequence[Placed], n: int, *, min_keys: int = 200, grown: Sequence[int] = ()) -> dict[str, Any]:
    """Return the expected answer; *grown*: how many partitions the topic had before, the likeliest number first."""
    where: dict[bytes, set[int]] = defaultdict(set)
    for key, partition in placed:
        if key:
            where[key].add(partition)
    rules = {name: sum(plain.partition(name, key, n) in at for key, at in where.items()) for name in RULES}
    best = max(RULES, key=lambda name: rules[name])
    share = rules[best] / len(where) if where else None
    said: dict[str, Any] = {
        "keys": len(where),
        "records": len(placed),
        "null_keys": sum(key is None for key, _ in placed),
        "empty_keys": sum(key == b"" for key, _ in placed),
        "rule": None,
        "share": share,
        "rules": rules,
        "in_several_partitions": sum(len(at) > 1 for at in where.values()),
    }
    chance = 1 / n
    least = max(0.5, chance + 4 * math.sqrt(chance * (1 - chance) / max(len(where), 1)))
    judged = share is not None and len(where) >= min_keys and share >= least and n > 1
    said["rule"] = best if judged else None
    said["misplaced"] = _misplaced(placed, where, n, best, grown) if judged else _nothing()
    return said


def _nothing() -> dict[str, Any]:
    return {"keys": 0, "records": 0, "grown_from": {}, "another_rule": {}, "unframed": 0, "none": 0}


def _misplaced(
    placed: Sequence[Placed], where: dict[bytes, set[int]], n: int, rule: str, grown: Sequence[int]
) -> dict[str, Any]:
    wrong = [(key, at) for key, found in where.items() for at in found if at != plain.partition(rule, key, n)]
    others = Counter({name: sum(plain.partition(name, key, n) == at for key, at in wrong) for name in RULES})
    order = sorted((name for name in RULES if name != rule), key=lambda name: (-others[name], RULES.index(name)))
    ranked = [*(f"grown {m}" for m in grown), *RULES, "unframed", "none"]

    def cause(key: bytes, at: int) -> str:
        for m in grown:
            if plain.partition(rule, key, m) == at:
                return f"grown {m}"
        for name in order:
            if plain.partition(name, key, n) == at:
                return name
        framed = key[0] == 0 and len(key) > 5
        return "unframed" if framed and plain.partition(rule, key[5:], n) == at else "none"

    causes: dict[bytes, str] = {}
    for key, at in wrong:
        causes[key] = max(causes.get(key, ranked[0]), cause(key, at), key=ranked.index)
    counts = Counter(causes.values())
    places = set(wrong)
    return {
        "keys": len(causes),
        "records": sum(one in places for one in placed),
        "grown_from": {str(m): counts[f"grown {m}"] for m in grown if counts[f"grown {m}"]},
        "another_rule": {name: counts[name] for name in RULES if counts[name]},
        "unframed": counts["unframed"],
        "none": counts["none"],
    }


def agrees(row: dict[str, Any], said: dict[str, Any]) -> None:
    """Hold a topic's row against a verdict."""
    assert {name: row[name] for name in said} == said
