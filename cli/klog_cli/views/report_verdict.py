"""The verdict of `klog report`: the results of verify, doctor, transactions, replicas diff, and of a look at the times.

Each check is one line.  The pass over the logs has counted damage, times and transactions; only the start of a broker
and the comparison of copies read logs again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import KlogError, counted
from klog.base.progress import Sink
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.audit.header_findings import FUTURE_MS
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import (
    HANGING,
    INDEX_WRONG,
    TXN_INDEX_WRONG,
    Diagnosis,
    Fate,
    KafkaVersion,
    LogDirState,
)
from klog.commands.doctor.start_request import StartRequest
from klog.commands.replicas.diff import DiffOptions, PartitionDiff, ReplicaDiffer, Verdict, diff_all
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk, copies_on, find_metadata
from klog.commands.report.report_page import VerdictLine, VerdictState
from klog.commands.transactions.transaction_details import TransactionDetail
from klog.data_dir.log_dir import LogDir
from klog.partition.verify.findings import Finding, Severity, quoted
from klog.partition.verify.verify import VerifyTotals

from klog_cli import output
from klog_cli.views.replicas.advice import behind_logs

_LONGEST_TRANSACTION_MS = 900_000
"""Kafka's default of transaction.max.timeout.ms: an open transaction of an unknown timeout may last that long."""
_DANGEROUS = (Verdict.INCOMPARABLE, Verdict.DAMAGED, Verdict.DIVERGED, Verdict.MISSING)
_RUNS = "lock-held"
_FATES = {
    Fate.EMPTIES: "emptied",
    Fate.STRAYS: "set aside as stray",
    Fate.DELETES: "deleted",
    Fate.LEADERLESS: "without a leader",
    Fate.OFFLINE: "offline",
    Fate.REFUSES: "refused",
    Fate.UNREACHED: "not reached",
}
"""The results that need a step, in words."""

Brokers = Mapping[tuple[str | None, int | None], Sequence[LogDir]]
"""The given log dirs by cluster id and node id."""


def brokers_of(log_dirs: Sequence[LogDir]) -> Brokers:
    """Return the log dirs by the broker whose they are."""
    found: dict[tuple[str | None, int | None], list[LogDir]] = {}
    for one in log_dirs:
        found.setdefault((one.cluster_id, one.node_id), []).append(one)
    return found


def data_line(findings: Sequence[Finding], totals: VerifyTotals, paths: str) -> VerdictLine:
    """Return the result of `klog verify`."""
    damage, warnings = (sum(one.severity is kind for one in findings) for kind in (Severity.DAMAGE, Severity.WARNING))
    read = (
        f"{counted(totals.segments, 'segment')}, {output.human_size(totals.bytes)},"
        f" {counted(totals.batches, 'batch', 'es')}"
    )
    if damage:
        also = f", {counted(warnings, 'warning')}" if warnings else ""
        state, said = VerdictState.DAMAGE, f"damaged in {counted(damage, 'place')}{also}"
    elif warnings:
        state, said = VerdictState.WARNING, f"not damaged, {counted(warnings, 'warning')}"
    else:
        state, said = VerdictState.CLEAN, "clean"
    return VerdictLine("verify", "Data", state, f"{said}; {read}", command=f"klog verify {paths}")


# the next start


def start_lines(brokers: Brokers, sink: Sink, plain: Container[str]) -> Iterator[VerdictLine]:
    """Yield the result of `klog doctor` for each broker; *plain*: paths of partitions that have no transactions."""
    if not brokers:
        yield VerdictLine("doctor", "Next start", VerdictState.UNASKED, "not known: no complete log dir is given")
    for (_, node), log_dirs in brokers.items():
        subject = f"Next start of node {node}" if len(brokers) > 1 and node is not None else "Next start"
        # Such a log dir has no metadata log: a broker of 4.x would set all of it aside.
        is_old = any(one.is_kraft is False for one in log_dirs)
        version = KafkaVersion.V2_8 if is_old else KafkaVersion.V4_3
        paths = [one.path for one in log_dirs]
        words = " ".join(["klog doctor", *(["--kafka-version 2.8"] if is_old else []), *map(quoted, paths)])
        try:
            found = diagnose(StartRequest(paths, version, has_steps=False, plain=plain), sink)
        except KlogError as error:
            yield VerdictLine("doctor", subject, VerdictState.WARNING, "not known", str(error), words)
            continue
        said, detail = _start(found)
        yield VerdictLine("doctor", subject, _start_state(found), said, detail, words)


def _start_state(found: Diagnosis) -> VerdictState:
    if found.is_harmless:
        return VerdictState.CLEAN
    if found.failure is not None and found.failure.id == _RUNS:
        return VerdictState.UNASKED
    return VerdictState.DAMAGE if not found.starts or found.loses else VerdictState.WARNING


def _start(found: Diagnosis) -> tuple[str, str]:
    """Return the course of a start in klog's own words, and the details with names of the disk."""
    if found.failure is not None and found.failure.id == _RUNS:
        return "not known: a broker is running on the log dir", ""
    if found.failure is not None:
        return f"a broker {found.version.value} does not start ({found.failure.id})", found.failure.message
    lost = sum(bool(row.lost_records) for row in found.partitions)
    loses = f"loses {counted(found.loses, 'record')} in {counted(lost, 'partition')}" if lost else "loses nothing"
    parts = [f"a broker {found.version.value} starts, and {loses}"]
    offline = sum(one.fate is not LogDirState.LOADS for one in found.log_dirs)
    parts += [f"{counted(offline, 'log dir')} offline"] if offline else []
    fates = Counter(row.fate for row in found.partitions)
    parts += [f"{counted(fates[fate], 'partition')} {words}" for fate, words in _FATES.items() if fates[fate]]
    wrong = sum(row.reason == TXN_INDEX_WRONG for row in found.partitions)
    parts += [f"{counted(wrong, 'partition')} with a wrong transaction index"] if wrong else []
    wrong = sum(row.reason == INDEX_WRONG for row in found.partitions)
    parts += [f"{counted(wrong, 'partition')} whose consumers skip records over a wrong index"] if wrong else []
    stuck = sum(row.reason == HANGING for row in found.partitions)
    parts += [f"{counted(stuck, 'partition')} with a transaction that nothing ends"] if stuck else []
    parts += found.unsafe
    due = sum(one.records for one in found.retention)
    parts += [f"then retention removes {counted(due, 'record')}"] if due else []
    return "; ".join(parts), ""


# transactions and times


class TransactionCounts:
    """Counts transactions by state.  *late*: the open ones that last longer than their timeout."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.late = self.longest_ms = 0

    def take(self, one: TransactionDetail) -> None:
        """Count a transaction."""
        self.states[one.state] += 1
        if one.state == "open":
            most = _LONGEST_TRANSACTION_MS if one.coordinator is None else one.coordinator.timeout_ms
            self.late += one.duration is None or one.duration > most
            self.longest_ms = max(self.longest_ms, one.duration or 0)


def transaction_line(found: TransactionCounts | None, paths: str) -> VerdictLine:
    """Return the result of `klog transactions`; *found*: None if it could not be read."""
    if found is None:
        command = f"klog transactions {paths}"
        return VerdictLine("transactions", "Transactions", VerdictState.WARNING, "not known", command=command)
    hanging, opened = found.states["hanging"], found.states["open"]
    parts = [f"{hanging} hanging"] if hanging else []
    lasts = f", the longest for {span(found.longest_ms)}" if found.longest_ms else ""
    parts += [f"{opened} open{lasts}"] if opened else []
    state = VerdictState.WARNING if hanging or found.late else VerdictState.CLEAN
    said = ", ".join(parts) if parts else f"{counted(found.states.total(), 'transaction')}, none open"
    words = [*(["--state hanging"] if hanging else []), *(["--state open"] if opened else [])]
    command = " ".join(["klog transactions", paths, *words])
    return VerdictLine("transactions", "Transactions", state, said, command=command)


def span(ms: int) -> str:
    """Return a duration for people: 40 s, 12 min, 3.5 h, 4.6 days."""
    for unit, size, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if ms < most * size:
            return f"{ms / size:.0f} {unit}" if unit != "h" else f"{ms / size:.1f} {unit}"
    return f"{ms / 86_400_000:.1f} days"


def time_line(ahead: int, latest: int, now_ms: int, paths: str) -> VerdictLine:
    """Return the result of the look for times in the future; *ahead*: partitions with such, *latest*: the last one."""
    if not ahead:
        return VerdictLine("audit", "Timestamps", VerdictState.CLEAN, "none in the future", command=None)
    said = (
        f"{counted(ahead, 'partition')} with records up to {span(latest - now_ms)} in the future:"
        " retention keeps their segments until then"
    )
    return VerdictLine("audit", "Timestamps", VerdictState.WARNING, said, command=f"klog audit {paths}")


def is_ahead(latest: int, now_ms: int) -> bool:
    """Whether a timestamp is further ahead than clocks differ: by more than an hour, as for `klog audit`."""
    return latest > now_ms + FUTURE_MS


# copies


class ComparedCopies(NamedTuple):
    """The results of `klog replicas diff`.  *unequal*: the verdicts about partitions, by topic and number."""

    lines: list[VerdictLine]
    unequal: dict[tuple[str, int], str]


def compare_copies(brokers: Brokers, jobs: int) -> ComparedCopies:
    """Compare the copies of partitions on the disks of several brokers, cluster by cluster."""
    found = ComparedCopies([], {})
    clusters: dict[str | None, list[BrokerDisk]] = {}
    for (cluster_id, node), log_dirs in brokers.items():
        if node is not None:
            clusters.setdefault(cluster_id, []).extend(BrokerDisk(node, one) for one in log_dirs)
    for disks in clusters.values():
        if len({disk.node for disk in disks}) > 1:
            paths = " ".join(["klog replicas diff", *(quoted(disk.log_dir.path) for disk in disks)])
            try:
                _compare(disks, jobs, paths, found)
            except KlogError as error:
                found.lines.append(
                    VerdictLine("replicas", "Copies", VerdictState.WARNING, "not compared", str(error), paths)
                )
    if not found.lines:
        said = "not compared: that takes log dirs of several brokers of a cluster"
        found.lines.append(VerdictLine("replicas", "Copies", VerdictState.UNASKED, said))
    return found


def _compare(disks: Sequence[BrokerDisk], jobs: int, command: str, found: ComparedCopies) -> None:
    """Add the line for the *disks* of a cluster, if more than one broker has copies."""
    copies: list[BrokerCopies] = copies_on(disks)
    if len({node for one in copies for node in one.copies}) < 2:
        return
    metadata = find_metadata(disks)
    config = TopicConfig(None, {}) if metadata is None else TopicConfig(None, {}, LogDir(metadata.path))
    diffs: list[PartitionDiff] = []
    diff_all(ReplicaDiffer(disks, DiffOptions(metadata, config)), copies, jobs, diffs.append)
    verdicts = Counter(one.verdict for one in diffs)
    for one in diffs:
        if not one.is_safe:
            found.unequal[one.topic, one.number] = one.verdict.value
    is_behind = bool(behind_logs(metadata, copies))
    state = VerdictState.WARNING if found.unequal or is_behind else VerdictState.CLEAN
    if any(verdicts[one] for one in _DANGEROUS):
        state = VerdictState.DAMAGE
    found.lines.append(VerdictLine("replicas", "Copies", state, _copies(diffs, verdicts, is_behind), command=command))


def _copies(diffs: Sequence[PartitionDiff], verdicts: Mapping[Verdict, int], is_behind: bool) -> str:
    counts = ", ".join(f"{verdicts[one]} {one.value}" for one in Verdict if verdicts.get(one))
    parts = [f"{counted(len(diffs), 'partition')}: {counts}"]
    losing = sum(any(lost.records for lost in one.lost_if_leads.values()) for one in diffs)
    parts += [f"{counted(losing, 'partition')} may lose records: do not start these brokers yet"] if losing else []
    absent = sum(bool(one.not_given) for one in diffs)
    parts += [f"copies of {counted(absent, 'partition')} are not among the disks"] if absent else []
    parts += ["the metadata log is behind the logs"] if is_behind else []
    return "; ".join(parts)
