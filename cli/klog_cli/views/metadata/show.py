"""`klog metadata show`: from the path to the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from klog.base.errors import ExitCode, counted
from klog.cluster.metadata.cluster_image import QuorumImage
from klog.cluster.metadata.metadata_directory import MetadataDirectory, match_topics, open_metadata
from klog.cluster.metadata.metadata_loader import ClusterMetadata, LogPoint
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.formats.properties import QuorumState

from klog_cli import output
from klog_cli.style import bad, faint, good, strong, warning
from klog_cli.views.metadata import json as metadata_json

_MOST_PARTITIONS = 100
_LABEL = 12
_BROKERS = ("broker", "epoch", "rack", "state", "endpoints")
_TOPICS = ("topic", "topic id", "partitions", "no leader", "not in sync", "settings")
_PARTITIONS = ("partition", "leader", "epoch", "replicas", "isr", "elr", "last known elr", "reassignment")


def show(path: str, globs: Sequence[str], at: int | None, form: str) -> int:
    """Print the cluster, and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    directory = open_metadata(path)
    found = directory.read(at)
    topics = match_topics(sorted(found.topic_ids), globs)
    end = LogPoint(found.end_offset, found.epoch)
    if at is not None:
        end = max(end, directory.end)
    for sentence in found.problems:
        output.error(sentence)
    if form == "json":
        for part in metadata_json.document(directory, found, end, topics):
            output.write(part)
    else:
        _page(directory, found, end, topics, bool(globs))
    return ExitCode.PROBLEMS_LEFT if found.damage else ExitCode.CLEAN


def _page(
    directory: MetadataDirectory, found: ClusterMetadata, end: LogPoint, topics: Sequence[str], chosen: bool
) -> None:
    output.lines((_labelled(label, line) for label, line in _head(directory, found, end)), hang=_LABEL)
    output.text("\n")
    output.emit_table((), _BROKERS, list(_brokers(found)))
    output.text("\n")
    output.emit_table((), _TOPICS, [_topic(found, topic) for topic in topics])
    rows = [(topic, *one) for topic in topics for one in found.partitions[found.topic_ids[topic]].items()]
    if chosen or len(rows) <= _MOST_PARTITIONS:
        output.text("\n")
        output.emit_table(
            (), _PARTITIONS, [_partition(f"{topic}-{number}", one) for topic, number, one in sorted(rows)]
        )
    else:
        output.lines([faint(f"{len(rows)} partitions: --topic NAME shows those of a topic, --output json all")])
    tail = list(_tail(found))
    if tail:
        output.text("\n")
    output.lines((_labelled(label, line) for label, line in tail), hang=_LABEL)


def _labelled(label: str, line: str) -> str:
    return f"{faint(label) if label else ''}{' ' * (_LABEL - len(label))}{line}"


def _head(directory: MetadataDirectory, found: ClusterMetadata, end: LogPoint) -> Iterator[tuple[str, str]]:
    log_dir, quorum = directory.log_dir, found.quorum
    node = "an unknown node" if log_dir is None or log_dir.node_id is None else f"node {log_dir.node_id}"
    cluster = "" if log_dir is None or log_dir.cluster_id is None else f", cluster {log_dir.cluster_id}"
    yield "log", f"{directory.partition.path} of {node}{cluster}"
    where = "the end of the log" if found.end_offset == end.offset else f"the log ends at {end.offset}"
    snapshot = "no snapshot" if found.snapshot is None else f"snapshot at {found.snapshot.offset}"
    yield "as of", f"offset {found.end_offset}, leader epoch {found.epoch}; {where}; {snapshot}"
    if found.end_offset == end.offset:
        yield "", "the files do not record which of the last records were committed"
    leader = "no leader known" if quorum.leader is None else f"leader {quorum.leader}, epoch {quorum.epoch}"
    state = directory.quorum_state
    if isinstance(state, QuorumState):
        nodes = ["none" if node is None else str(node) for node in (state.leader_id, state.voted_id)]
        leader += f"; quorum-state: leader {nodes[0]}, epoch {state.leader_epoch}, voted for {nodes[1]}"
    yield "quorum", leader
    yield from _voters(quorum)
    version = found.state.settings.metadata_version
    levels = [
        f"{name} {f'{version} ({level})' if name == 'metadata.version' and version else level}"
        for name, level in sorted({**found.features, "kraft.version": quorum.kraft_version}.items())
    ]
    # The break is never inside of a feature.
    features = ", ".join(level.replace(" ", "\0") for level in levels)
    room = output.width() - _LABEL if output.is_terminal() else max(1, len(features))
    lines = wrap(features, room, break_long_words=False)
    for number, line in enumerate(lines):
        yield "" if number else "features", line.replace("\0", " ")
    for id_, controller in sorted(found.state.cluster.controllers.items()):
        yield "controller", f"{id_} {' '.join(map(str, controller.endpoints))}"


def _voters(quorum: QuorumImage) -> Iterator[tuple[str, str]]:
    if quorum.voters is None:
        yield "voters", "in the configuration (controller.quorum.voters), because kraft.version is 0"
    for voter in sorted(quorum.voters or ()):
        yield "voter", f"{voter.id} {voter.directory_id} {' '.join(map(str, voter.endpoints))}"


def _brokers(found: ClusterMetadata) -> Iterator[tuple[object, ...]]:
    for id_, broker in sorted(found.brokers.items()):
        if broker.registered:
            state = warning("shutting down") if broker.shutting_down else good("alive")
            state = warning("fenced") if broker.fenced else state
            yield id_, broker.epoch, broker.rack, state, " ".join(map(str, broker.endpoints))


def _topic(found: ClusterMetadata, topic: str) -> tuple[object, ...]:
    topic_id = found.topic_ids[topic]
    partitions = found.partitions[topic_id].values()
    settings = " ".join(f"{name}={text}" for name, text in sorted(found.topic_config(topic).items()))
    leaderless = sum(one.leader < 0 for one in partitions)
    lagging = sum(len(one.isr) < len(one.replicas) for one in partitions)
    no_leader = bad(str(leaderless)) if leaderless else leaderless
    return strong(topic), topic_id, len(partitions), no_leader, warning(str(lagging)) if lagging else lagging, settings


def _partition(name: str, one: PartitionRegistration) -> tuple[object, ...]:
    moves = [f"{sign}{node}" for sign, nodes in (("+", one.adding), ("-", one.removing)) for node in nodes]
    members = [",".join(map(str, nodes)) for nodes in (one.replicas, one.isr, one.elr, one.last_known_elr)]
    leader = bad("none") if one.leader < 0 else f"{one.leader}{' (recovering)' if one.recovering else ''}"
    return strong(name), leader, one.leader_epoch, *members, " ".join(moves)


def _tail(found: ClusterMetadata) -> Iterator[tuple[str, str]]:
    settings = found.state.settings
    for (kind, name), texts in sorted(settings.configs.items()):
        resource = metadata_json.RESOURCES.get(kind, f"resource {kind}")
        whose = f"{resource} {name}" if name else f"every {resource}"
        if resource != "topic":
            yield "setting", f"{whose}: {' '.join(f'{key}={text}' for key, text in sorted(texts.items()))}"
    for entity, values in settings.quotas.items():
        whose = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
        yield "quota", f"{whose}: {' '.join(f'{key}={value:g}' for key, value in sorted(values.items()))}"
    for (user, mechanism), iterations in sorted(settings.scram.items()):
        yield "credential", f"{user}: {mechanism}, {iterations} iterations"
    for acl in sorted(settings.acls.values()):
        pattern = f"{acl.resource_type} {acl.resource_name} ({acl.pattern_type})"
        yield "acl", f"{acl.permission} {acl.principal} from {acl.host}: {acl.operation} on {pattern}"
    if settings.next_producer_id is not None:
        yield "producers", f"next producer id {settings.next_producer_id}"
    if settings.tokens:
        yield "tokens", f"{counted(len(settings.tokens), 'delegation token')}"
    for number, count in sorted(found.state.unknown.items()):
        yield "unknown", f"{counted(count, 'record')} of type {number}, which this klog does not know"
    if found.open_transaction:
        yield "open", "the log ends inside of a metadata transaction; what is in it does not count"
