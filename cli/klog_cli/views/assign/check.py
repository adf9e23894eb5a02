"""`klog assign --check`: how the topics of a metadata log are spread over brokers and racks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.cluster.metadata.metadata_directory import MetadataDirectory, match_topics
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.cluster.placement.assignment_checks import AssignmentFacts, UsableBroker, assess
from klog.cluster.placement.classic_placer import ClassicStart, find_classic

from klog_cli import output
from klog_cli.style import bad, good, strong
from klog_cli.views.assign.assign import facts_json, read_cluster

_MOST_FAULTS = 20


class _Topic(NamedTuple):
    """A topic's replicas by partition, the facts about them, and the classic start that explains them, if any."""

    name: str
    topic_id: str
    replicas: Mapping[int, tuple[int, ...]]
    facts: AssignmentFacts
    classic: ClassicStart | None


def check(path: str, globs: Sequence[str], others: Sequence[str], form: str) -> int:
    """Check, print, and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    if others or form == "reassignment":
        raise UsageError(f"{others[0] if others else '--output reassignment'}: not with --check, which places nothing")
    directory, found = read_cluster(path)
    topics = list(_topics(found, globs))
    if form == "json":
        output.emit_json(_document(directory, found, topics))
    elif form in ("jsonl", "csv"):
        rows = list(map(_topic_json, topics))
        output.emit_jsonl(rows) if form == "jsonl" else output.emit_csv_rows(rows)
    else:
        _table(topics, {node: broker.rack or "-" for node, broker in found.brokers.items()})
    faults = any(not topic.facts.is_sound for topic in topics)
    return ExitCode.PROBLEMS_LEFT if faults or found.damage else ExitCode.CLEAN


def _topics(found: ClusterMetadata, globs: Sequence[str]) -> Iterator[_Topic]:
    here = [
        UsableBroker(node, broker.rack, broker.fenced)
        for node, broker in found.brokers.items()
        if not broker.unregistered
    ]
    gone = {node: broker.rack for node, broker in found.brokers.items() if broker.unregistered}
    for name in match_topics(sorted(found.topic_ids), globs):
        topic_id = found.topic_ids[name]
        replicas = {number: _intended(one) for number, one in sorted(found.partitions[topic_id].items())}
        is_whole = list(replicas) == list(range(len(replicas)))
        classic = find_classic(list(replicas.values()), here) if is_whole else None
        yield _Topic(name, topic_id, replicas, assess(replicas, here, gone), classic)


def _intended(partition: PartitionRegistration) -> tuple[int, ...]:
    """Return the intended replicas after the end of a reassignment."""
    return tuple(node for node in partition.replicas if node not in partition.removing)


def _document(directory: MetadataDirectory, found: ClusterMetadata, topics: Sequence[_Topic]) -> object:
    return {
        "metadata": {"path": directory.partition.path, "offset": found.end_offset, "problems": list(found.problems)},
        "racks": {str(node): one.rack for node, one in sorted(found.brokers.items()) if not one.unregistered},
        "topics": [_topic_json(topic) for topic in topics],
    }


def _topic_json(topic: _Topic) -> dict[str, object]:
    start = topic.classic
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.replicas),
        **facts_json(topic.facts),
        "doubled": list(topic.facts.doubled),
        "narrow": list(topic.facts.narrow or ()),
        "classic": None
        if start is None
        else {
            "start_index": start.start_index,
            "shift": start.shift,
            "rack_aware": start.rack_aware,
            "brokers": list(start.brokers),
            "grown_at": list(start.grown_at),
        },
    }


def _table(topics: Sequence[_Topic], racks: Mapping[int, str]) -> None:
    columns = ("topic", "partitions", "distinct", "all racks", "leaders", "replicas", "classic")
    faults = [line for topic in topics for line in _faults(topic, racks)]
    found = bad(counted(len(faults), "fault")) if faults else good("no fault")
    more = len(faults) - _MOST_FAULTS
    titles = [f"{found} in {counted(len(topics), 'topic')}", *(f"  {line}" for line in faults[:_MOST_FAULTS])]
    titles += [f"  and {more} more"] if more > 0 else []
    output.emit_table([*titles, ""], columns, map(_row, topics))


def _row(topic: _Topic) -> tuple[object, ...]:
    facts = topic.facts
    covered = "-" if facts.racks_covered is None else _yes(facts.racks_covered)
    return (
        strong(topic.name),
        len(topic.replicas),
        _yes(facts.distinct),
        covered,
        _range(facts.leaders),
        _range(facts.replicas),
        _classic_words(topic.classic),
    )


def _yes(answer: bool) -> str:
    return "yes" if answer else bad("NO")


def _range(counts: Mapping[int, int]) -> str:
    low, high = min(counts.values(), default=0), max(counts.values(), default=0)
    return output.range_text(low, high)


def _classic_words(start: ClassicStart | None) -> str:
    if start is None:
        return "no"
    grown = "".join(f", grown at {first}" for first in start.grown_at)
    return f"start {start.start_index}, shift {start.shift}{', racks' * start.rack_aware}{grown}"


def _faults(topic: _Topic, racks: Mapping[int, str]) -> Iterator[str]:
    for number in topic.facts.doubled:
        yield f"{topic.name}-{number}: a broker is there twice: {','.join(map(str, topic.replicas[number]))}"
    for number, (covered, possible) in (topic.facts.narrow or {}).items():
        where = ", ".join(f"{node} ({racks.get(node, 'unknown')})" for node in topic.replicas[number])
        yield f"{topic.name}-{number}: in {covered} of {possible} racks: {where}"
