"""Checks whole partitions: findings, and how much was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.base.errors import KlogError
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs.results import TaskResult, from_batch, json_result, to_batch
from klog.partition.verify.facts import LogDirFacts
from klog.partition.verify.findings import KINDS, Finding
from klog.partition.verify.segment import SurveyOptions
from klog.partition.verify.verify import Chosen, PartitionResult, VerifyTotals, log_dir_facts, verify_partition

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ANSWERS = 4096


class VerifyTask(NamedTuple):
    """A partition of a unit: its *number* among all that are checked, and the log dir around it, None if alone."""

    number: int
    path: str
    log_dir: str | None


class VerifyOptions(NamedTuple):
    """How partitions are checked: see `klog.partition.verify.verify.verify_partition`."""

    request: SurveyOptions = SurveyOptions()
    chosen: Chosen | None = None


def verify(unit: Sequence[VerifyTask], options: VerifyOptions) -> Iterator[pa.RecordBatch]:
    """Check each partition of *unit*: answers are its findings, and in the end its totals.

    Nothing is raised for what is on the disk: that is a finding.
    """
    log_dirs: dict[str, tuple[LogDir, LogDirFacts]] = {}
    answers: list[TaskResult] = []
    for part in unit:
        checked = _checked(part, options, log_dirs)
        for finding in checked.findings:
            answers.append(json_result("finding", {"number": part.number, **finding.json()}))
            if len(answers) >= _BATCH_ANSWERS:
                yield to_batch(answers)
                answers = []
        answers.append(json_result("totals", {"number": part.number, "totals": checked.totals}))
    yield to_batch(answers)


def _checked(
    part: VerifyTask, options: VerifyOptions, log_dirs: dict[str, tuple[LogDir, LogDirFacts]]
) -> PartitionResult:
    partition = Partition(part.path)
    try:
        around = None
        if part.log_dir is not None:
            if part.log_dir not in log_dirs:
                log_dir = LogDir(part.log_dir)
                log_dirs[part.log_dir] = log_dir, log_dir_facts(log_dir)
            log_dir, around = log_dirs[part.log_dir]
            partition = Partition(part.path, log_dir.checkpoints)
        return verify_partition(partition, around, options.request, chosen=options.chosen)
    except KlogError as error:
        kind = KINDS["unreadable"]
        topic, number, name = partition.topic, partition.number, partition.directory
        finding = Finding(kind, topic, number, name, None, None, str(error), kind.broker, kind.fix)
        return PartitionResult(partition, [finding], VerifyTotals(1))


def collect_results(batches: Iterable[pa.RecordBatch], partitions: Sequence[Partition]) -> Iterator[PartitionResult]:
    """Yield what came of each of *partitions* that was checked, in their order, from the answers of all units."""
    found: dict[int, list[Finding]] = {}
    totals: dict[int, VerifyTotals] = {}
    for answer in (answer for batch in batches for answer in from_batch(batch)):
        facts = answer.facts
        number = facts.pop("number")
        if answer.kind == "finding":
            found.setdefault(number, []).append(_finding(facts))
        else:
            totals[number] = VerifyTotals(*facts["totals"])
    for number in sorted(totals):
        yield PartitionResult(partitions[number], found.get(number, []), totals[number])


def _finding(facts: dict[str, Any]) -> Finding:
    """Return a finding from its own JSON."""
    facts["kind"] = KINDS[facts.pop("id")]
    facts["fix"] = facts["fix"] or ""
    del facts["severity"]
    return Finding(**facts)
