"""The repair that loses nothing intact: rebuilds files from the log, and truncates it where nothing intact follows."""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.change.partition_plan.contents import Content, FileRange, StoredContent
from klog.change.partition_plan.desired_files import DesiredFiles, draft_changes
from klog.change.plan.draft import Draft
from klog.change.plan.model import Amount, Loss
from klog.formats.checkpoint import write_epochs
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name, parse_file, segment_names
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c
from klog.log.segment import MAX_SEGMENT_BYTES
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.recover_outcome import RecoverOptions, RecoverResult
from klog.partition.verify.findings import Finding, Severity
from klog.partition.verify.segment_pass import ByteRange, SegmentFacts

ENDS = frozenset(
    [
        "torn-tail",
        "zero-tail",
        "zeroed",
        "garbage-tail",
        "bad-crc",
        "bad-length",
        "more-damage",
        "bad-magic",
        "short-header",
        "unreadable",
    ]
)
"""Faults of the bytes of a log that disappear if the log is cut in front of them."""

_OFFSETS = frozenset({"overflow", "backwards", "odd offset", "beyond next"})
"""Events of a survey after which the right content of an index is unknown."""

OFFSET_KINDS = frozenset({"odd-offset", "offsets-backwards", "offset-overflow", "segments-overlap"})
"""The findings that these become."""

_NOBODYS = frozenset({"offset-gap", "offsets-missing", "sequence-gap"})
"""Missing data that no repair restores."""

_BY_NAME = frozenset({"orphan-index", "leftover"})
OF_INDEXES = ("index-", "time-index-", "txn-index-")
MENDED = frozenset(
    [
        "epochs-missing",
        "epochs-malformed",
        "epochs-disagree",
        "snapshot-corrupt",
        "snapshot-disagrees",
        "snapshots-missing",
        "recovery-point-beyond-end",
        "high-watermark-beyond-end",
        "high-watermark-below-start",
        "log-start-beyond-end",
        "cleaner-offset-outside",
    ]
)
"""The files that are rebuilt from the log, wherever it ends."""


def plan(survey: PartitionSurvey, settings: RecoverOptions, draft: Draft) -> RecoverResult:
    """Add to *draft* every file that must be rebuilt.  Raises UnreadableError, OSError (staging)."""
    result = RecoverResult(survey.original, survey.findings)
    if survey.fails is not None:
        result.fails = survey.fails
        result.left = problems(survey.findings)
        return result
    repair = _Repair(survey, settings)
    if any(repair.mends(finding) or finding.kind.id in _BY_NAME for finding in survey.findings):
        draft_changes(draft, survey.original, repair.target())
    result.left = repair.left()
    result.losses = repair.losses()
    result.kept = repair.kept()
    result.offsets = {} if settings.indexes_only else repair.offsets()
    result.notes = repair.notes
    return result


class RebuildOutcome(NamedTuple):
    """The outcome of a repair: the findings that would be *left*, and by base offset the size of logs it *cuts*."""

    left: list[Finding]
    cuts: dict[int, int]


class RepairedContent(NamedTuple):
    """A partition after a repair: *files*; its losses, the findings *left*, and the log end offset."""

    files: DesiredFiles
    left: list[Finding]
    losses: list[Loss]
    end: int


def repaired_content(survey: PartitionSurvey, settings: RecoverOptions) -> RepairedContent:
    """Return the content of a surveyed partition after its repair, for a copy.  Raises UnreadableError."""
    repair = _Repair(survey, settings)
    return RepairedContent(repair.target(), repair.left(), repair.losses(), repair.end)


def plan_outcome(survey: PartitionSurvey, settings: RecoverOptions) -> RebuildOutcome:
    """Return the outcome of a repair, for a partition that could be survey."""
    repair = _Repair(survey, settings)
    return RebuildOutcome(repair.left(), repair.cuts)


def problems(findings: list[Finding]) -> list[Finding]:
    """Return the findings that need action."""
    return [one for one in findings if one.kind.severity is not Severity.NOTE and one.kind.id not in _NOBODYS]


def is_of_index(finding: Finding) -> bool:
    """Whether something is wrong with the index of a segment; one that cannot be read as well."""
    kind = parse_file(os.path.basename(finding.file)).kind
    return finding.kind.id.startswith(OF_INDEXES) or (finding.kind.id == "unreadable" and kind in SEGMENT_KINDS[1:])


def base_of(finding: Finding) -> int | None:
    """Return the base offset of the segment that a finding is about."""
    return parse_file(os.path.basename(finding.file)).offset


class _Repair:
    def __init__(self, survey: PartitionSurvey, settings: RecoverOptions) -> None:
        self.facts = survey.facts
        self.notes: list[str] = []
        self._survey, self._settings = survey, settings
        self._cuts: dict[int, ByteRange] = {}
        self._left: set[int] = set()
        self._is_disordered = False
        for segment in self.facts.segments:
            self._judge(segment)
        segments = self.facts.segments
        self.end = segments[-1].end_offset if segments else 0
        self._found_of: dict[int | None, list[Finding]] = {}
        for finding in survey.findings:
            self._found_of.setdefault(base_of(finding), []).append(finding)
        self._reasons = {(base_of(one), one.position): one.kind.id for one in reversed(survey.findings)}
        self._zeros = {base for base, cut in self._cuts.items() if self._reason(base, cut) == "zero-tail"}

    def _judge(self, segment: SegmentFacts) -> None:
        """Decide whether a segment is cut, or left alone with its faults."""
        base, breaks = segment.files.base_offset, [part for part in segment.damages if part.expected is not None]
        is_disordered = any(event[0] in _OFFSETS for event in segment.survey.events)
        self._is_disordered |= is_disordered
        if segment.unreadable is not None or is_disordered:
            self._left.add(base)
        elif breaks:
            intact_after, _ = self.facts.batches_after(segment, breaks[0].batches, breaks[0].records)
            if intact_after or self._settings.indexes_only or self.facts.log_dir.live:
                self._left.add(base)
            else:
                self._cuts[base] = breaks[0]

    @property
    def _loses(self) -> bool:
        """Whether a cut takes more than zeros that were never written."""
        return any(base not in self._zeros for base in self._cuts)

    @property
    def cuts(self) -> dict[int, int]:
        """The logs that are cut, by base offset, and the sizes that they get in bytes."""
        return {base: cut.damage.place.position or 0 for base, cut in self._cuts.items()}

    def left(self) -> list[Finding]:
        """Return the problems that will still be there."""
        return problems([finding for finding in self._survey.findings if not self.mends(finding)])

    def mends(self, finding: Finding) -> bool:
        """Whether the repair removes a finding."""
        base = base_of(finding)
        if is_of_index(finding):
            return base not in self._left
        if finding.kind.id in ENDS:
            return base in self._cuts
        if finding.kind.id == "oversized-log":
            return base in self._cuts and self.cuts[base] <= MAX_SEGMENT_BYTES
        if finding.kind.id.startswith("epochs-") and self._is_disordered:
            return False  # where offsets cannot be, epochs begin that never did
        return finding.kind.id in MENDED and not self._settings.indexes_only

    # the desired content of the directory

    def target(self) -> DesiredFiles:
        """Return the desired files."""
        logs: dict[str, tuple[FileRange, ...]] = {}
        files: dict[str, Content] = {}
        for name, content in self._survey.files.items():
            file = parse_file(name)
            if file.kind is FileKind.LOG:
                assert isinstance(content, StoredContent)
                logs[name] = (FileRange(content.name, 0, content.size),)
            elif isinstance(content, bytes):
                continue  # zeros that a broker would put for an index that is missing
            elif file.kind is FileKind.SNAPSHOT or file_name(file.offset or 0, FileKind.LOG) in self._survey.files:
                files[name] = content
        for segment in self.facts.segments:
            if segment.files.base_offset not in self._left:
                self._segment(segment, logs, files)
        if self._settings.indexes_only:
            return DesiredFiles(logs, files)
        self._snapshots(files)
        return DesiredFiles(logs, files, self._epochs())

    def _segment(
        self, segment: SegmentFacts, logs: dict[str, tuple[FileRange, ...]], files: dict[str, Content]
    ) -> None:
        base = segment.files.base_offset
        log, index, time_index, txns = segment_names(base)
        cut = self._cuts.get(base)
        if cut is not None:
            logs[log] = (FileRange(segment.files.log, 0, cut.damage.place.position or 0),)
        if cut is not None or self._survey.has_wrong_index(segment):
            assert segment.builder is not None
            files[index], files[time_index] = segment.builder.offset_entries, segment.builder.time_entries
        is_unreadable = any(os.path.basename(one.file) == txns for one in self._found("unreadable", base))
        if cut is not None or is_unreadable or self._found("txn-index-", base):
            from klog.partition.repair.rebuilt_producer_snapshots import txn_index

            content = txn_index(self.facts, segment, segment.end_offset if cut is not None else None)
            if content or txns in files:
                files[txns] = content

    def _found(self, kind: str, base: int | None = None) -> list[Finding]:
        found = self._survey.findings if base is None else self._found_of.get(base, [])
        return [finding for finding in found if finding.kind.id.startswith(kind)]

    def _snapshots(self, files: dict[str, Content]) -> None:
        there = {offset: name for name, offset, _ in self.facts.snapshots}
        bases = [segment.files.base_offset for segment in self.facts.segments]
        wrong = {
            base_of(finding) for kind in ("snapshot-corrupt", "snapshot-disagrees") for finding in self._found(kind)
        }
        wanted = {offset for offset in wrong if offset is not None and (offset in bases or offset == self.end)}
        if self._found("snapshots-missing") or (wrong and not there.keys() - wrong):
            wanted |= {*bases[1:], self.end}
        if self._loses:
            wrong |= {offset for offset in there if offset > self.end}
            wanted |= {self.end} - (there.keys() - wrong)
        wanted = {offset for offset in wanted if offset > (self.facts.partition.log_start_offset or 0)}
        for offset, name in there.items():
            if offset in wrong:
                del files[name]
        if not wanted:
            return
        from klog.partition.repair.rebuilt_producer_snapshots import RebuiltSnapshots

        states = RebuiltSnapshots(self.facts, self._settings)
        for offset, producers in states.at(wanted, there.keys() & wrong).items():
            files[file_name(offset, FileKind.SNAPSHOT)] = write_snapshot(producers, crc32c)
        if states.is_guess:
            self.notes.append(
                "producer snapshots were built from a damaged log: producers in the damaged part are missing"
            )

    def _epochs(self) -> bytes | None:
        found = self.facts.partition.epochs
        beyond = found is not None and any(entry.start_offset >= self.end for entry in found.entries)
        wrong = any(self.mends(finding) for finding in self._found("epochs-"))
        if not wrong and not (self._loses and beyond):
            return None
        from klog.change.partition_plan.desired_files import rebuilt_from_start

        seen = [(epoch, offset) for segment in self.facts.segments for epoch, offset, _ in segment.survey.epochs]
        return write_epochs(rebuilt_from_start(self.facts.partition, seen, self.end))

    # the meaning of that

    def _reason(self, base: int, cut: ByteRange) -> str:
        return self._reasons.get((base, cut.damage.place.position), "damage")

    def losses(self) -> list[Loss]:
        """Return the losses.  Raises UnreadableError."""
        if not self._loses:
            return []
        from klog.change.partition_plan.desired_files import cut_loss

        found = []
        for segment in self.facts.segments:
            base = segment.files.base_offset
            cut = self._cuts.get(base)
            if cut is not None and base not in self._zeros:
                position, expected, reason = cut.damage.place.position or 0, cut.expected or 0, self._reason(base, cut)
                records = self._survey.logs.count_records(segment.files.log, position)
                found.append(cut_loss(self.facts.partition, segment.files.log, position, expected, reason, records))
        return found

    def kept(self) -> Amount:
        """Return the future content of the logs that were survey."""
        records = sum(segment.survey.records + segment.survey.legacy for segment in self.facts.segments)
        sizes = (
            (self._cuts[segment.files.base_offset].damage.place.position or 0)
            if segment.files.base_offset in self._cuts
            else segment.size
            for segment in self.facts.segments
        )
        return Amount(records, sum(sizes))

    def offsets(self) -> dict[FileKind, int | None]:
        """Return the changes of the log dir's checkpoints."""
        return contradicted(self._survey, self.end)


def contradicted(survey: PartitionSurvey, end: int) -> dict[FileKind, int | None]:
    """Return the changes of the log dir's checkpoints that the log, with its future *end*, contradicts."""
    partition, ids = survey.partition, {finding.kind.id for finding in survey.findings}
    changed: dict[FileKind, int | None] = {}
    if (partition.recovery_point or 0) > end:
        changed[FileKind.RECOVERY_POINTS] = end
    if (partition.high_watermark or 0) > end:
        changed[FileKind.HIGH_WATERMARKS] = end
    elif "high-watermark-below-start" in ids:
        changed[FileKind.HIGH_WATERMARKS] = partition.log_start_offset
    if (partition.log_start_offset or 0) > end:
        changed[FileKind.LOG_STARTS] = None
    if (partition.cleaner_offset or 0) > end or "cleaner-offset-outside" in ids:
        changed[FileKind.CLEANER_OFFSETS] = None
    return changed
