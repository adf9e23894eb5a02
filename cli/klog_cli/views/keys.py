"""The output of `klog keys check`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, counted
from klog.cluster.keyed_topics import NO_PARTITIONER, KeyTopic, key_topics
from klog.cluster.partitioners import NAME_OF_RULE
from klog.commands.keys.key_check import CheckedTopic, KeyCheckOptions, MisplacedKey, check_keys
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.replicas import find_partitions
from klog.data_dir.selection import PartitionChoice
from klog.kernel import is_utf8
from klog.partition.start.replica_choice import select_replicas

from klog_cli import output
from klog_cli.style import bad, good, strong

_COLUMNS = ("topic", "partitions", "records", "keys", "rule", "share", "misplaced", "why", "in several")
_KEY_COLUMNS = ("key", "partition", "expected", "records", "first", "last", "why")
_SHOWN_KEY = 40
_SHOWN_MISSING = 5


class KeyCheckRequest(NamedTuple):
    """*partition_count*: of every topic, None if unknown."""

    paths: Sequence[str]
    topics: Sequence[str]
    numbers: Sequence[PartitionChoice]
    choice: IdentityChoice
    partition_count: int | None


def check(request: KeyCheckRequest, options: KeyCheckOptions, form: str) -> int:
    """Check the keys of the requested topics and return the exit code."""
    topics = _topics(request)
    for topic in topics:
        _tell_count(topic)
    problems = False
    with output.Results() as results:
        found = []
        for one in check_keys(topics, options, results):
            for line in one.damage:
                results.report(line)
            problems |= bool(one.judgement.misplaced or one.damages)
            if form == "jsonl":
                output.emit_jsonl([_json(one)])
            else:
                found.append(one)
    if form == "json":
        output.emit_json({"topics": [_json(one) for one in found]})
    elif form == "csv":
        output.emit_csv_rows(map(_json, found))
    elif form == "text":
        _text(found, options.min_keys)
    return ExitCode.PROBLEMS_LEFT if problems else 0


def _topics(request: KeyCheckRequest) -> list[KeyTopic]:
    """Return the topics to check: one copy of each partition, none of the topics that brokers write themselves."""
    every = find_partitions(request.paths)
    given = (request.paths, request.topics, request.numbers)
    chosen = select_replicas(*given, choice=request.choice, note=output.note)
    if not request.topics:
        chosen = [one for one in chosen if one.topic not in NO_PARTITIONER]
    clusters = {one.checkpoints.cluster_id for one in chosen}
    log_dirs = {one.log_dir: LogDir(one.log_dir) for one in every if one.checkpoints.cluster_id in clusters}
    return key_topics(chosen, list(log_dirs.values()), request.partition_count)


def _tell_count(topic: KeyTopic) -> None:
    """Print on stderr that the number of partitions is a guess, if it is one."""
    if topic.counted_by != "directories":
        return
    sentence = f"{topic.name}: {counted(topic.partition_count, 'partition')}, by the highest directory"
    if topic.missing:
        more = len(topic.missing) - _SHOWN_MISSING
        some = ", ".join(map(str, topic.missing[:_SHOWN_MISSING])) + (f" and {more} more" if more > 0 else "")
        sentence += f", missing here: {some}"
    output.note(f"{sentence}; --partitions N says how many there are")


def _json(one: CheckedTopic) -> dict[str, object]:
    judged = one.judgement
    return {
        "topic": one.topic.name,
        "topic_id": one.topic.topic_id,
        "partitions": one.topic.partition_count,
        "partitions_from": one.topic.counted_by,
        "keys": judged.keys,
        "records": one.records,
        "null_keys": one.null_keys,
        "empty_keys": one.empty_keys,
        "rule": judged.rule_name,
        "share": judged.share,
        "rules": {NAME_OF_RULE[rule]: keys for rule, keys in enumerate(judged.counts)},
        "misplaced": {
            "keys": judged.misplaced,
            "records": judged.misplaced_records,
            "grown_from": judged.grown_from,
            "another_rule": judged.another_rule,
            "unframed": judged.unframed,
            "none": judged.unexplained,
        },
        "in_several_partitions": judged.several,
        "examples": [_key_json(key) for key in one.examples],
        "damages": one.damages,
    }


def _key_json(one: MisplacedKey) -> dict[str, object]:
    """Return a key as in a dump; `length` if only its start is known."""
    facts: dict[str, object] = {}
    facts |= {"key": one.key.decode()} if is_utf8(one.key) else {"key_base64": b64encode(one.key).decode()}
    facts |= {"length": one.length} if one.length > len(one.key) else {}
    names = ("partition", "expected", "records", "first_offset", "last_offset")
    return facts | {name: getattr(one, name) for name in names} | {"why": one.cause}


def _text(found: Sequence[CheckedTopic], min_keys: int) -> None:
    output.emit_table((_verdict(found), ""), _COLUMNS, [tuple(_cells(one, min_keys)) for one in found])
    for one in (one for one in found if one.examples):
        more = one.judgement.misplaced - len({key.key for key in one.examples})
        rows = [_key_cells(key) for key in one.examples]
        title = f"{one.topic.name}: keys that {one.judgement.rule_name} puts elsewhere"
        output.text("\n")
        output.emit_table((f"{title}{f', {more} more' if more > 0 else ''}",), _KEY_COLUMNS, rows)


def _verdict(found: Sequence[CheckedTopic]) -> str:
    topics = counted(len(found), "topic")
    misplaced = sum(one.judgement.misplaced for one in found)
    if not misplaced:
        return f"{good('no key in the wrong partition')}: {topics}"
    wrong = sum(bool(one.judgement.misplaced) for one in found)
    keys = bad(f"{counted(misplaced, 'key')} in the wrong partition")
    return f"{keys}, in {wrong} of {topics}"


def _cells(one: CheckedTopic, min_keys: int) -> Iterator[output.Cell]:
    judged = one.judgement
    yield from (strong(one.topic.name), one.topic.partition_count, one.records, judged.keys)
    yield judged.rule_name or ("none" if judged.keys >= min_keys else "too few keys")
    yield "" if judged.share is None else f"{judged.share:.1%}"
    misplaced = bad(str(judged.misplaced)) if judged.misplaced else judged.misplaced
    yield from (misplaced, ", ".join(_reasons(one)), judged.several)


def _reasons(one: CheckedTopic) -> Iterator[str]:
    judged = one.judgement
    for count, keys in judged.grown_from.items():
        yield f"{keys} when there {'was' if int(count) == 1 else 'were'} {counted(int(count), 'partition')}"
    yield from (f"{keys} as {name}" for name, keys in judged.another_rule.items())
    if judged.unframed:
        yield f"{judged.unframed} without the schema id"
    if judged.unexplained:
        yield f"{judged.unexplained} unexplained"


def _key_cells(one: MisplacedKey) -> tuple[output.Cell, ...]:
    text = one.key.decode("utf-8", "backslashreplace")
    key = text if len(text) <= _SHOWN_KEY and one.length == len(one.key) else f"{text[:_SHOWN_KEY]}…"
    return (key or "(empty)", one.partition, one.expected, one.records, one.first_offset, one.last_offset, one.cause)
