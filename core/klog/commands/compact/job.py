"""Compacts many partitions into a new log dir; a task compacts one partition after the other.

The result is that of `klog compact --to` for the same log dirs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import DamagedError, UnreadableError, UsageError
from klog.base.progress import Sink
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.compaction import CheckpointValues, Copier, PartitionOutcome, checkpointed
from klog.commands.compact.log_cleaner import CleanerOptions, PartitionCompaction
from klog.commands.compact.log_to_clean import examine
from klog.commands.compact.topic_rules import Refusal, RefusalReason, TopicRules
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.formats.names import PartitionState
from klog.jobs.output_commit import Facts, JobOutput, OutputAttempt, lock_target
from klog.jobs.runner import Job, Runner, TaskResult, collect
from klog.jobs.slices import pack_tasks

_STAGED, _ROOT = "staged", "root"


class CompactTask(NamedTuple):
    """A partition to compact.  *log_dir*: which of the log dirs it is in.  *size*: bytes of its logs."""

    number: int
    log_dir: int
    path: str
    rules: TopicRules
    size: int


class CompactJobOptions(NamedTuple):
    """*run*: the hidden directory of the output.  *now_ms*: when it is taken to happen, None: when it does.

    The others as in `klog.commands.compact.compaction.CompactOptions`.
    """

    run: str
    now_ms: int | None
    everything: bool
    choices: CleanerOptions


def compact_partitions(
    targets: Sequence[Selection],
    topics: Sequence[TopicConfig],
    to: str,
    options: CompactJobOptions,
    runner: Runner,
    sink: Sink,
) -> tuple[list[Facts], list[PartitionOutcome]]:
    """Write the partitions of *targets*, compacted, into *to*, as `klog compact --to` does; *topics*: their settings.

    Returns the facts about each, and the outcomes of those that failed (PartitionOutcome).  After a failure the same
    call continues with the missing parts.  Raises UsageError if *to* has other content, LockedError if another run
    writes there, KlogError, OSError.
    """
    pieces = plan_tasks(targets, topics)
    with lock_target(to, Disk()):
        output = begin(to, pieces, options, Disk())
        left = [piece for piece in pieces if piece.number not in output.done]
        packs = pack_tasks([piece.size for piece in left], least=runner.workers)
        units = [[left[i] for i in numbers] for numbers in packs]
        sizes = [sum(piece.size for piece in unit) for unit in units]
        collect(runner, Job(compact, units, options._replace(run=output.run), sizes), sink)
        facts = finish(output, pieces, [target.log_dir for target in targets], Disk())
    return facts, collect_failures(facts, pieces)


def plan_tasks(targets: Sequence[Selection], topics: Sequence[TopicConfig]) -> list[CompactTask]:
    """Return the partitions of *targets*, whose topics' settings *topics* have.  Raises UsageError, UnreadableError."""
    pieces: list[CompactTask] = []
    seen: dict[str, str] = {}
    for log_dir, (target, settings) in enumerate(zip(targets, topics, strict=True)):
        by_topic: dict[str | None, TopicRules] = {}
        for one in target.partitions:
            if one.topic not in by_topic:
                by_topic[one.topic] = TopicRules.of(settings, one.topic)
            if one.state is PartitionState.CURRENT and seen.setdefault(one.directory, one.path) != one.path:
                raise UsageError(f"{seen[one.directory]}, {one.path}: two copies of one partition; name one")
            # Tasks may run elsewhere, with another working directory.
            pieces.append(CompactTask(len(pieces), log_dir, os.path.abspath(one.path), by_topic[one.topic], one.size))
    return pieces


def begin(to: str, pieces: Sequence[CompactTask], options: CompactJobOptions, disk: Disk) -> JobOutput:
    """Return the future place of the compacted log dir; the output of an earlier, identical run is used.

    Raises UsageError, OSError.
    """
    from klog import __version__

    what = [options.now_ms, options.everything, options.choices]
    rules = {id(piece.rules): str(piece.rules) for piece in pieces}
    facts = [[piece.path, piece.size, rules[id(piece.rules)]] for piece in pieces]
    return JobOutput(to, {"job": "compact", "version": __version__, "options": what, "pieces": facts}, disk)


def compact(unit: Sequence[CompactTask], options: CompactJobOptions) -> Iterator[TaskResult]:
    """Compact the partitions of *unit*; yield an answer `piece` of each.  Raises OSError when writing fails."""
    for piece in unit:
        with OutputAttempt(options.run, piece.number, shared=False) as attempt:
            if not attempt.is_done:
                written, facts = _compact(piece, options, attempt)
                attempt.commit(written, facts)
        yield TaskResult("piece", b"", piece.number)


def _compact(piece: CompactTask, options: CompactJobOptions, attempt: OutputAttempt) -> tuple[list[str], Facts]:
    """Write a partition's copy, if there is to be one; return the written files and the outcome."""
    outcome = PartitionOutcome(0, Partition(piece.path), piece.rules)
    staged = os.path.join(attempt.path, _STAGED)
    root = os.path.join(attempt.path, _ROOT)
    copier = Copier(root, staged, attempt.disk)
    attempt.disk.make_directory(root)
    try:
        draft = _clean(outcome, staged, options, attempt)
        if draft is not None:
            copier.partition(outcome, draft)
    except (DamagedError, UnreadableError) as error:
        outcome.failed = error
    except OSError as error:
        # The input may be missing or unreadable by now; a failed write is an error.
        if not str(error.filename).startswith(piece.path):
            raise
        outcome.failed = UnreadableError(f"{error.filename}: {error.strerror}")
    remove_tree(staged, attempt.disk)
    if outcome.failed is not None:
        remove_tree(root, attempt.disk)
        return [], _facts(outcome)
    return copier.written, _facts(outcome)


def _clean(outcome: PartitionOutcome, staged: str, options: CompactJobOptions, attempt: OutputAttempt) -> Draft | None:
    """Stage new content in *staged*; None if the partition is refused."""
    partition, rules = outcome.partition, outcome.rules
    assert rules is not None
    now_ms = int(time.time() * 1000) if options.now_ms is None else options.now_ms
    found = examine(partition, rules, now_ms, everything=options.everything)
    if isinstance(found, Refusal):
        outcome.refused = found
        return None
    outcome.sections = found
    draft = Draft(os.path.dirname(partition.path), 0, Staging(os.path.join(staged, "0"), attempt.disk))
    if found.eligible:
        scratch = Staging(os.path.join(staged, "rounds"), attempt.disk)
        outcome.compacted = PartitionCompaction(found, options.choices).plan(draft, scratch)
    return draft


def _facts(outcome: PartitionOutcome) -> Facts:
    partition, done = outcome.partition, outcome.compacted
    facts: Facts = {"topic": partition.topic, "partition": partition.number, "path": partition.path}
    if outcome.failed is not None:
        return facts | {"result": "failed", "message": str(outcome.failed), "exit_code": int(outcome.failed.exit_code)}
    if outcome.refused is not None:
        refused = outcome.refused
        return facts | {
            "result": "refused",
            "ground": refused.ground.value,
            "what": refused.what,
            "advice": refused.advice,
        }
    assert outcome.sections is not None
    facts |= {"directory": partition.directory, "reason": outcome.sections.reason, "checkpoints": checkpointed(outcome)}
    if done is None:
        return facts | {"result": "copied"}
    counts = {
        name: sum(getattr(one.counts, name) for one in done.rounds)
        for name in ("records_in", "records_out", "superseded", "keyless", "discarded", "expired")
    }
    sizes = {"bytes_in": done.rounds[0].bytes_in, "bytes_out": done.rounds[-1].bytes_out}
    return facts | {"result": "compacted", "rounds": len(done.rounds)} | sizes | counts


def finish(output: JobOutput, pieces: Sequence[CompactTask], log_dirs: Sequence[LogDir], disk: Disk) -> list[Facts]:
    """Move the partitions into place, with their checkpoints; return the outcome of each.

    Raises KlogError if a piece is missing, OSError.
    """
    results = output.results(len(pieces))
    copied = [one for one in results if one.get("directory")]
    root = os.path.join(output.run, _ROOT)
    remove_tree(root, disk)
    disk.make_directory(root)
    copier = Copier(root, root, disk)
    copier.checkpoints([CheckpointValues(*one["checkpoints"]) for one in copied])
    copier.identity(log_dirs)
    copier.finish()
    moves = [
        (os.path.join(output.piece(number), _ROOT, facts["directory"]), facts["directory"])
        for number, facts in enumerate(results)
        if facts.get("directory")
    ]
    output.finish([*moves, *((os.path.join(root, name), name) for name in sorted(os.listdir(root)))])
    return results


def collect_failures(results: Sequence[Facts], pieces: Sequence[CompactTask]) -> list[PartitionOutcome]:
    """Return the outcomes of partitions with a failure, as in `klog compact`."""
    return [_outcome(facts, piece) for facts, piece in zip(results, pieces, strict=True)]


def _outcome(facts: Facts, piece: CompactTask) -> PartitionOutcome:
    outcome = PartitionOutcome(piece.log_dir, Partition(piece.path), piece.rules)
    if facts["result"] == "refused":
        outcome.refused = Refusal(piece.path, RefusalReason(facts["ground"]), facts["what"], facts["advice"])
    elif facts["result"] == "failed":
        kind = DamagedError if facts["exit_code"] == DamagedError.exit_code else UnreadableError
        outcome.failed = kind(facts["message"])
    return outcome
