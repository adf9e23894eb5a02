"""`klog assign`: from the brokers of the command line to the replicas that are printed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, KlogError, UsageError
from klog.cluster.placement.assignment_checks import AssignmentFacts, UsableBroker, assess
from klog.cluster.placement.classic_placer import place_classic
from klog.cluster.placement.striped_placer import place_striped
from klog.formats.java_integers import INT_MAX, LONG_MAX, LONG_MIN

from klog_cli import output
from klog_cli.style import good, strong, warning

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_directory import MetadataDirectory
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

_SEED_BYTES = 4


class AssignRequest(NamedTuple):
    """The request of the command line."""

    brokers: str | None
    racks: str | None
    source: str | None
    partitions: int | None
    replication: int | None
    algorithm: str
    seed: int | None
    start_index: int | None
    shift: int | None
    start_partition: int
    fenced: str | None
    no_racks: bool
    topics: Sequence[str]


class _Placement(NamedTuple):
    """The replicas by partition number, the brokers that they were placed on, and the start values."""

    brokers: Sequence[UsableBroker]
    origin: dict[str, int]
    replicas: dict[int, tuple[int, ...]]


def assign(request: AssignRequest, form: str) -> int:
    """Place, print, and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    _check(request, form)
    placement = _place(request, _brokers(request))
    if form == "reassignment":
        output.emit_jsonl([_reassignment(request.topics[0], placement.replicas)])
        return ExitCode.CLEAN
    facts = assess(placement.replicas, placement.brokers, {})
    document = _document(request, placement, facts)
    if form == "json":
        output.emit_json(document)
    elif form in ("jsonl", "csv"):
        rows = [{"partition": number, "replicas": list(nodes)} for number, nodes in sorted(placement.replicas.items())]
        output.emit_jsonl(rows) if form == "jsonl" else output.emit_csv_rows(rows)
    else:
        _table(request, placement, facts)
    return ExitCode.CLEAN


def _check(request: AssignRequest, form: str) -> None:
    """Raise UsageError for options that are missing, or do not go together."""
    if (request.brokers is None) == (request.source is None):
        raise UsageError(
            "--brokers or --metadata: one of them says which brokers there are; --check DIR looks at topics"
        )
    if request.racks is not None and request.brokers is None:
        raise UsageError("--racks goes with --brokers: with --metadata the metadata log has the racks")
    if request.partitions is None or request.replication is None:
        raise UsageError("--partitions and --replication are needed: how many partitions, of how many replicas")
    starts = {"--start-index": request.start_index, "--shift": request.shift}
    others = {"--seed": request.seed} if request.algorithm == "classic" else starts
    for option, value in others.items():
        if value is not None:
            raise UsageError(f"{option} means nothing to --algorithm {request.algorithm}")
    if request.seed is not None and not LONG_MIN <= request.seed <= LONG_MAX:
        raise UsageError(f"--seed {request.seed}: expected a number of 64 bits")
    if len(request.topics) > 1 or (form == "reassignment" and not request.topics):
        raise UsageError("--topic NAME: one is needed for --output reassignment, and more are for --check")


# ---------------------------------------------------------------- the brokers


def _brokers(request: AssignRequest) -> list[UsableBroker]:
    """Return the brokers to place on, by id.  Raises UsageError, UnreadableError, KlogError."""
    if request.source is not None:
        _, found = read_cluster(request.source)
        brokers = found.state.cluster.usable_brokers()
        if not brokers:
            raise KlogError(f"{request.source}: no broker is registered that takes new partitions")
    else:
        racks = _racks(request.racks)
        ids = _ids("--brokers", request.brokers or "")
        _known("--racks", racks, ids)
        brokers = [UsableBroker(node, racks.get(node)) for node in sorted(ids)]
    if request.fenced is not None:
        fenced = () if request.fenced == "none" else _ids("--fenced", request.fenced)
        _known("--fenced", fenced, [broker.id for broker in brokers])
        brokers = [broker._replace(fenced=broker.id in fenced) for broker in brokers]
    if request.no_racks:
        brokers = [broker._replace(rack=None) for broker in brokers]
    if request.source is not None and all(broker.fenced for broker in brokers):
        raise UsageError(
            f"{request.source}: all brokers are fenced, as after a stop: nobody could lead; Kafka:"
            " INVALID_REPLICATION_FACTOR (38); --fenced none takes them for running"
        )
    return brokers


def read_cluster(path: str) -> tuple[MetadataDirectory, ClusterMetadata]:
    """Return the metadata log at *path* and its content; its problems are printed.

    Raises UsageError, UnreadableError; KlogError if there is no such log.
    """
    from klog.cluster.metadata.metadata_directory import open_metadata

    directory = open_metadata(path)
    found = directory.read()
    for sentence in found.problems:
        output.error(sentence)
    return directory, found


def _ids(option: str, text: str) -> list[int]:
    """Return the ids in a list.  Raises UsageError for a word that is no id, or a repeated one."""
    ids = []
    for part in text.split(","):
        if not (part.isdecimal() and part.isascii() and len(part) <= 10 and int(part) <= INT_MAX):
            raise UsageError(f"{option} {text}: expected ids with commas between them, 0,1,2")
        ids.append(int(part))
    if twice := [one for before, one in enumerate(sorted(ids)[1:]) if sorted(ids)[before] == one]:
        raise UsageError(f"{option} {text}: {twice[0]} is there twice")
    return ids


def _racks(text: str | None) -> dict[int, str]:
    """Return the racks by broker.  Raises UsageError."""
    pairs = [part.partition(":") for part in text.split(",")] if text is not None else []
    if not all(rack for _, _, rack in pairs):
        raise UsageError(f"--racks {text}: expected BROKER:RACK with commas between them, 0:a,1:b")
    ids = _ids("--racks", ",".join(node for node, _, _ in pairs)) if pairs else []
    return {node: rack for node, (_, _, rack) in zip(ids, pairs, strict=True)}


def _known(option: str, given: Sequence[int] | dict[int, str], ids: Sequence[int]) -> None:
    known = set(ids)
    unknown = [node for node in given if node not in known]
    if unknown:
        raise UsageError(f"{option}: there is no broker {unknown[0]}; brokers: {','.join(map(str, sorted(known)))}")


# ---------------------------------------------------------------- the replicas


def _place(request: AssignRequest, brokers: list[UsableBroker]) -> _Placement:
    """Use the given values; draw the others at random and print them."""
    partitions, replication = request.partitions or 0, request.replication or 0
    first = request.start_partition
    if request.algorithm == "kraft":
        seed = int.from_bytes(os.urandom(_SEED_BYTES), "big") if request.seed is None else request.seed
        placed, origin = place_striped(brokers, partitions, replication, seed), {"seed": seed}
        if request.seed is None:
            output.note(f"seed {seed} was drawn: --seed {seed} gives the same again")
        return _Placement(brokers, origin, dict(enumerate(placed, first)))
    fenced = [broker.id for broker in brokers if broker.fenced]
    brokers = [broker for broker in brokers if not broker.fenced]
    start = _drawn(len(brokers)) if request.start_index is None else request.start_index
    drawn = start if request.start_index is not None else _drawn(len(brokers))
    shift = drawn if request.shift is None else request.shift
    placed = place_classic(brokers, partitions, replication, start, shift, first)
    if fenced:
        output.note(f"left out, as ZooKeeper lists only brokers that run: {','.join(map(str, fenced))}")
    if request.start_index is None:
        output.note(f"drawn: --start-index {start} --shift {shift} gives the same again")
    return _Placement(brokers, {"start_index": start, "shift": shift}, dict(enumerate(placed, first)))


def _drawn(bound: int) -> int:
    return int.from_bytes(os.urandom(_SEED_BYTES), "big") % max(bound, 1)


def _reassignment(topic: str, replicas: dict[int, tuple[int, ...]]) -> object:
    """Return the input of `kafka-reassign-partitions`.  Kafka: ReassignPartitionsCommand."""
    return {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": number, "replicas": ids, "log_dirs": ["any"] * len(ids)}
            for number, ids in replicas.items()
        ],
    }


def _document(request: AssignRequest, placement: _Placement, facts: AssignmentFacts) -> object:
    return {
        "algorithm": request.algorithm,
        **placement.origin,
        "topic": request.topics[0] if request.topics else None,
        "start_partition": request.start_partition,
        "racks": {str(broker.id): broker.rack for broker in placement.brokers},
        "fenced": [broker.id for broker in placement.brokers if broker.fenced],
        "assignment": list(placement.replicas.values()),
        **facts_json(facts),
    }


def facts_json(facts: AssignmentFacts) -> dict[str, object]:
    """Return facts as JSON has them."""
    return {
        "leaders": {str(node): count for node, count in sorted(facts.leaders.items())},
        "replicas": {str(node): count for node, count in sorted(facts.replicas.items())},
        "distinct": facts.distinct,
        "racks_covered": facts.racks_covered,
        "leaders_spread": facts.leaders_spread,
        "replicas_spread": facts.replicas_spread,
    }


def _table(request: AssignRequest, placement: _Placement, facts: AssignmentFacts) -> None:
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in placement.origin.items())
    racks = {broker.id: broker.rack or "-" for broker in placement.brokers}
    has_racks = any(broker.rack is not None for broker in placement.brokers)
    topic = f"{request.topics[0]}-" if request.topics else ""
    rows = (
        (
            strong(f"{topic}{number}"),
            ",".join(map(str, ids)),
            *([",".join(racks[node] for node in ids)] if has_racks else []),
        )
        for number, ids in placement.replicas.items()
    )
    titles = [f"{request.algorithm}, {said}", ""]
    output.emit_table(titles, ("partition", "replicas", *(["racks"] if has_racks else [])), rows)
    output.text("\n")
    output.emit_table((), ("broker", "rack", "state", "leads", "replicas"), _broker_rows(placement.brokers, facts))


def _broker_rows(brokers: Sequence[UsableBroker], facts: AssignmentFacts) -> Iterator[tuple[object, ...]]:
    for broker in brokers:
        state = warning("fenced") if broker.fenced else good("running")
        yield broker.id, broker.rack, state, facts.leaders[broker.id], facts.replicas[broker.id]
