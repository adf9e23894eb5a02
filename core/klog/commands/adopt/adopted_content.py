"""The future content of an adopted partition: the repaired source, with epochs, producers and transactions that fit the
cluster.  Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError, counted
from klog.base.overlays import overlay_file
from klog.base.progress import Sink
from klog.change.partition_plan.contents import Content, FileRange, SplicedLog, txn_entries
from klog.change.plan.model import Loss
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.adopt.adopted_sources import AdoptSource
from klog.commands.adopt.target_log_dirs import AdoptTarget, KnownProducers, refuse
from klog.commands.adopt.transaction_ends import ABORTED, LeftOpen, SourceTransactions, open_amount
from klog.formats.checkpoint import EpochEntry, epochs_in_force, read_epochs, write_epochs
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name, parse_file
from klog.formats.producer_snapshot import Producer, write_snapshot
from klog.kernel import IndexBuilder, Window, crc32c, stamp
from klog.log.header_walk import window_of
from klog.log.index import txn_index_content
from klog.log.reader import LogReader
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.rebuild import RepairedContent, repaired_content
from klog.partition.repair.rebuilt_producer_snapshots import RebuiltSnapshots
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions
from klog.partition.start.record_tally import EVERYTHING, OffsetSpan, tally_records
from klog.partition.transactions.appended_ends import EndedTransaction, transaction_ends
from klog.partition.verify.findings import Severity

REWRITE, KEEP, DROP, ABORT, REFUSE = "rewrite", "keep", "drop", "abort", "refuse"
_STEP_BYTES: Final = 1 << 18
_OF_THE_TOPIC: Final = frozenset({"metadata-missing", "metadata-malformed"})
"""Findings about the file with the topic id, which is replaced."""
_BEHIND_DAMAGE: Final = "changed while it was read; run this again"


class AdoptOptions(NamedTuple):
    """The options of an adoption.

    *now_ms*: time of markers.  *replace*: records of the target may go.  *epochs*: REWRITE, KEEP, or None: as needed.
    *producers*: KEEP, DROP, or None: those whose ids the target's metadata log has handed out.  *open_transactions*:
    ABORT, REFUSE, or None: those end that no coordinator of the target has under way.  *name*: of the partition that a
    lone source becomes.  *jobs*: threads.
    """

    now_ms: int
    replace: bool = False
    epochs: str | None = None
    producers: str | None = None
    open_transactions: str | None = None
    name: str | None = None
    jobs: int = 1


HIDDEN: Final = "hidden by a log start above the leader epochs"


class LogContent(NamedTuple):
    """A future log: *pieces* of the source's files, and behind them *more*."""

    pieces: tuple[FileRange, ...]
    more: bytes = b""


class AdoptedLog:
    """The future content of a partition.

    *logs*, *files*: by name.  *epoch*: the new one of all batches, None if they keep theirs.  *keeps_producers*: all
    producers of the source are kept.  *producers*: the ids of the kept ones, *forgotten*: of the others, if there are
    both.  *ended* (aborted), *committed*, *left_open*: the open transactions by their treatment.  *records*: data
    records between *log_start* and *log_end*.  *losses*: the parts of the source that are cut, damaged, or aborted
    against its coordinator.  Raises RefusedError, UnreadableError.
    """

    def __init__(
        self,
        source: AdoptSource,
        target: AdoptTarget,
        config: TopicConfig,
        options: AdoptOptions,
        known: KnownProducers,
        transactions: SourceTransactions,
        sink: Sink,
    ) -> None:
        self._source, self._target, self._options, self._known = source, target, options, known
        self._transactions = transactions
        self._interval = config.value(target.key[0], "index.interval.bytes").number
        index_bytes = config.value(target.key[0], "segment.index.bytes").number
        self._settings = RecoverOptions(
            RecoverMode.DEFAULT, options.now_ms, interval=self._interval, index_bytes=index_bytes, jobs=options.jobs
        )
        self._survey = PartitionSurvey.read(source.partition, source.around, self._settings, sink)
        found = self._repaired()
        self.logs = {name: LogContent(pieces) for name, pieces in sorted(found.files.logs.items())}
        self.files: dict[str, Content] = dict(found.files.files)
        self.losses: list[Loss] = found.losses
        self.log_end = self._source_end = found.end
        self.log_start = min(source.partition.log_start_offset or 0, found.end)
        self.records = self._count(found)
        self._note_hidden(found)
        self._epochs = self._known_epochs(found)
        self.epoch = self._choose_epoch()
        self.ended: tuple[EndedTransaction, ...] = ()
        self.committed: tuple[EndedTransaction, ...] = ()
        self.left_open: tuple[LeftOpen, ...] = ()
        self.keeps_producers = known.is_own
        self.producers: frozenset[int] = frozenset()
        self.forgotten: frozenset[int] = frozenset()
        self._settle_producers()

    # the source

    def _repaired(self) -> RepairedContent:
        path = quote(self._source.path)
        copy = f"COPY/{self._target.name}"
        advice = f"mkdir COPY && cp -a {path} {copy} && klog recover {copy} --salvage --apply"
        if self._survey.fails is not None:
            raise refuse(self._source, "damaged", self._survey.fails, advice)
        if not self._survey.facts.segments:
            raise refuse(self._source, "damaged", "there is no segment in it", f"klog describe {path}")
        found = repaired_content(self._survey, self._settings)
        bad = [one for one in found.left if one.severity is Severity.DAMAGE and one.id not in _OF_THE_TOPIC]
        if bad:
            more = f" (and {counted(len(bad) - 1, 'more finding')})" if len(bad) > 1 else ""
            raise refuse(self._source, "damaged", f"{bad[0].id} in {bad[0].file}: {bad[0].message}{more}", advice)
        return found

    def _count(self, found: RepairedContent) -> int:
        segments = self._survey.facts.segments
        first = segments[0].files.base_offset
        is_plain = self.log_start == first and not found.losses
        if is_plain and not any(one.survey.producer_batches or one.survey.legacy for one in segments):
            return sum(one.survey.records for one in segments)
        span = OffsetSpan(self.log_start, self.log_end)
        return tally_records(self._survey.partition, span, EVERYTHING, found.files.logs).records

    def _note_hidden(self, found: RepairedContent) -> None:
        """Add the loss of the records that the source's log start hides.  Raises UnreadableError."""
        first = self._source.partition.start_by_epochs
        if first is None or first >= self.log_start:
            return
        span = OffsetSpan(first, self.log_start)
        records = tally_records(self._survey.partition, span, EVERYTHING, found.files.logs).records
        if records:
            self.losses.append(Loss(*self._target.key, first, self.log_start - 1, records, 0, HIDDEN))

    # epochs

    def _known_epochs(self, found: RepairedContent) -> list[EpochEntry]:
        said = self._survey.facts.partition.epochs
        if found.files.epochs is not None:
            said = read_epochs(found.files.epochs)
        entries = epochs_in_force(said.entries) if said is not None else []
        return [one for one in entries if one.start_offset < self.log_end]

    def _choose_epoch(self) -> int | None:
        facts = self._survey.facts
        seen = [epoch for one in facts.segments for epoch, _, _ in one.survey.epochs]
        wanted = self._options.epochs
        if wanted == REWRITE and not seen and any(one.survey.legacy for one in facts.segments):
            message = "its messages are of a format before v2, which has no epochs"
            command = self._target.command(self._source, "--epochs", KEEP)
            raise refuse(self._source, "format-too-old", message, command)
        last = max([*seen, *(one.epoch for one in self._epochs)], default=-1)
        self._is_ahead = last > self._target.epoch
        if wanted == KEEP or (wanted is None and not self._is_ahead):
            return None
        self._epochs = [EpochEntry(self._target.epoch, self.log_start)] if seen else []
        return self._target.epoch

    @property
    def epochs(self) -> bytes:
        """The future `leader-epoch-checkpoint`."""
        return write_epochs(self._epochs)

    # producers and transactions

    def _settle_producers(self) -> None:
        facts, last = self._survey.facts, max(self.logs)
        is_produced = any(one.survey.producer_batches for one in facts.segments)
        if not is_produced and not facts.snapshots:
            return
        found = self._end_transactions(last)
        seen = self._ids_in_force(last) if self._known.is_own else frozenset()
        # Without its producer an open transaction would be none, and all could read it.
        self.producers = frozenset([*filter(self._known.has, seen), *(one.producer_id for one in self.left_open)])
        self.forgotten = seen - self.producers
        if self._known.is_own and not self.forgotten:
            return
        self.keeps_producers = False
        for name in [name for name in self.files if parse_file(name).kind is FileKind.SNAPSHOT]:
            del self.files[name]
        if is_produced or self.producers:
            self._roll(last, [one for one in found if one.producer_id in self.producers])

    def _ids_in_force(self, last: str) -> frozenset[int]:
        """Return the ids of all producers that a start, or a recovery, takes from the log.

        A recovery replays the active segment, *last*, also of producers that were idle so long that a start forgets
        them.
        """
        settings, base = self._settings._replace(expiration_ms=LONG_MAX), parse_file(last).offset or 0
        states = RebuiltSnapshots(self._survey.facts, settings).at([base, self._source_end], self._wrong_snapshots())
        return frozenset(one.producer_id for state in states.values() for one in state)

    def _wrong_snapshots(self) -> set[int]:
        wrong = {offset for _, offset, one in self._survey.facts.snapshots if one.problem is not None}
        findings = self._survey.findings
        return wrong | {parse_file(one.file).offset or 0 for one in findings if one.id == "snapshot-disagrees"}

    def _roll(self, last: str, producers: Sequence[Producer]) -> None:
        """Begin a segment at the log end, with a snapshot that contains only *producers*.

        A recovery replays the active segment from the snapshot at its base: the other producers before it stay unknown,
        after a kill, too.  Without one it would replay all of them, and treat them as this cluster's.
        """
        if parse_file(last).offset != self.log_end:
            self.logs[file_name(self.log_end, FileKind.LOG)] = LogContent(())
            for kind in (FileKind.INDEX, FileKind.TIME_INDEX):
                self.files[file_name(self.log_end, kind)] = b""
        self.files[file_name(self.log_end, FileKind.SNAPSHOT)] = write_snapshot(producers, crc32c)

    def _end_transactions(self, last: str) -> Sequence[Producer]:
        """End transactions that would otherwise never end; return the producers at the log end."""
        end = self.log_end
        producers = RebuiltSnapshots(self._survey.facts, self._settings).at([end], self._wrong_snapshots())[end]
        commits = self._choose_ends([one for one in producers if one.current_txn_first_offset >= 0])
        if not commits:
            return producers
        epoch = self._epochs[-1].epoch if self._epochs else -1
        ends = transaction_ends(end, producers, commits, epoch, self._options.now_ms)
        txns = file_name(parse_file(last).offset or 0, FileKind.TXN_INDEX)
        known = list(txn_entries(self._source.partition.path, self.files.get(txns)))
        if known or ends.entries:
            self.files[txns] = txn_index_content([*known, *ends.entries])
        self.logs[last] = self.logs[last]._replace(more=ends.batches)
        self._index(last)
        self.ended, self.committed, self.log_end = ends.aborted, ends.committed, ends.state.end
        if end not in {parse_file(name).offset for name in self.logs}:
            self.files.pop(file_name(end, FileKind.SNAPSHOT), None)
        self.files[file_name(self.log_end, FileKind.SNAPSHOT)] = write_snapshot(ends.state.snapshot(), crc32c)
        return ends.state.snapshot()

    def _choose_ends(self, opened: Sequence[Producer]) -> dict[int, bool]:
        """Return the producers whose open transaction is ended here, and whether by a commit."""
        asked = self._options.open_transactions
        fates = {one: self._transactions.are_ended(one, self._is_ahead) for one in opened}
        unsure = [one for one, is_ended in fates.items() if not is_ended]
        if asked == REFUSE and unsure:
            first = min(one.current_txn_first_offset for one in unsure)
            message = (
                f"{counted(len(unsure), 'transaction')} from offset {first} on: open, and no coordinator would end them"
            )
            command = self._target.command(self._source, "--open-transactions", ABORT)
            raise refuse(self._source, "open-transaction", message, command)
        commits = {}
        for one, is_ended in fates.items():
            if is_ended is False:
                commits[one.producer_id] = asked is None and self._transactions.is_committed(one, self.log_end)
            elif asked == ABORT:
                commits[one.producer_id] = False
                self.losses.append(self._aborted(one))
            else:
                left = LeftOpen(one.producer_id, one.current_txn_first_offset, is_ended is True)
                self.left_open = (*self.left_open, left)
        return commits

    def _aborted(self, producer: Producer) -> Loss:
        """Return the loss by an abort of a transaction that its coordinator may commit."""
        amount = open_amount(self._survey.partition, producer, self.log_end)
        offsets = producer.current_txn_first_offset, self.log_end - 1
        return Loss(*self._target.key, *offsets, amount.records, amount.bytes, ABORTED)

    def _index(self, log: str) -> None:
        """Rebuild the indexes of a segment with more batches.  Raises UnreadableError."""
        base, content = parse_file(log).offset or 0, self.logs[log]
        builder = IndexBuilder(base, self._interval, self._settings.index_bytes)
        size = 0
        with SplicedLog(self._source.partition.path, log, content.pieces, {}) as source:
            for window, _ in _windows(source, base):
                builder.walk(window, 0, window.count)
            size = source.size
        window = window_of(content.more, size)
        window.scan(0)
        window.check(0, window.count)
        builder.walk(window, 0, window.count)
        builder.finish()
        index, time_index = (file_name(base, kind) for kind in SEGMENT_KINDS[1:3])
        self.files[index], self.files[time_index] = builder.offset_entries, builder.time_entries

    # its bytes

    def is_whole(self, log: str) -> bool:
        """Whether a log is to have all batches of the source's file of that name, and no others."""
        pieces, more = self.logs[log]
        if more or len(pieces) != 1 or pieces[0].name != log:
            return False
        size = next(one.size for one in self._survey.facts.segments if one.files.log == log)
        return (pieces[0].start, pieces[0].end) == (0, size)

    def whole_file(self, log: str) -> str | None:
        """Return the path of the file of which a log will be a copy; None if its bytes are changed, or remote."""
        path = self._source.partition.file(log)
        return path if self.epoch is None and self.is_whole(log) and overlay_file(path) is None else None

    def content(self, log: str) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a log, each piece good until the next.  Raises UnreadableError if it has changed."""
        pieces, more = self.logs[log]
        if pieces:
            with SplicedLog(self._source.partition.path, log, pieces, {}) as source:
                yield from log_content(source, log, self.epoch)
        if more:
            yield more

    @property
    def now_ns(self) -> int:
        """The modification time of files that the source does not have, in ns."""
        return self._options.now_ms * 1_000_000

    def size(self, log: str) -> int:
        """Return the bytes of a log."""
        pieces, more = self.logs[log]
        return sum(one.end - one.start for one in pieces) + len(more)

    def checkpoints(self, cleaner_offset: int | None) -> Mapping[FileKind, int | None]:
        """Return the lines in the log dir's checkpoints; None for one that is not there."""
        first = min(parse_file(name).offset or 0 for name in self.logs)
        is_inside = cleaner_offset is not None and self.log_start <= cleaner_offset <= self.log_end
        return {
            FileKind.RECOVERY_POINTS: self.log_end,
            FileKind.HIGH_WATERMARKS: self.log_end,
            FileKind.LOG_STARTS: self.log_start if self.log_start > first else None,
            FileKind.CLEANER_OFFSETS: cleaner_offset if is_inside else None,
        }


def _windows(source: SplicedLog, base: int) -> Iterator[tuple[Window, int]]:
    """Yield the batches of a log that was intact a moment ago, and their bytes.

    Raises UnreadableError if it no longer is intact.
    """
    window = Window(output=0)
    reader = LogReader(source, min_offset=base, max_offset=base + 2**31 - 1)
    while piece := reader.next(window):
        if piece.damage is not None:
            raise UnreadableError(f"{source.path}: {_BEHIND_DAMAGE}")
        yield window, piece.consumed


def log_content(source: SplicedLog, log: str, epoch: int | None) -> Iterator[memoryview]:
    """Yield the bytes of a log, with leader epoch *epoch* in all batches unless that is None.

    Each piece is good until the next.  Raises UnreadableError if it is no longer intact.
    """
    if epoch is not None:
        yield from restamped(source, parse_file(log).offset or 0, epoch)
        return
    window = memoryview(bytearray(min(_STEP_BYTES, source.size)))
    for at in range(0, source.size, _STEP_BYTES):
        yield window[: source.read_into(at, window)]


def restamped(source: SplicedLog, base: int, epoch: int) -> Iterator[memoryview]:
    """Yield the bytes of a log whose batches all have leader epoch *epoch*, which no checksum covers.

    Each piece is good until the next.  Raises UnreadableError if the log is no longer intact.
    """
    size = 0
    for window, consumed in _windows(source, base):
        stamp(window, 0, window.count, -1, epoch, 0)
        size += consumed
        yield window.content()[:consumed]
    if size != source.size:
        raise UnreadableError(f"{source.path}: {_BEHIND_DAMAGE}")
