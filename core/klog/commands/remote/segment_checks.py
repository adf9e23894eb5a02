"""Checks one segment that serves: its objects against its entry, its log, its indexes, and the small parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from klog.base.errors import KlogError, counted, offsets_text
from klog.base.progress import Sink
from klog.base.read_only import ReadableLog
from klog.commands.remote.aborted import abort_markers
from klog.commands.remote.log_findings import index_findings, log_findings
from klog.commands.remote.remote_findings import RemoteFinding
from klog.commands.remote.segment_check import SegmentCheck
from klog.commands.remote.segment_producers import SegmentProducers, snapshot_contradiction
from klog.data_dir.partition import SegmentFiles
from klog.formats.checkpoint import EpochEntry, epochs_in_force, read_epochs
from klog.formats.index import ABORTED_TXN
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.verify.segment_pass import SegmentFacts, SurveyOptions, survey_log
from klog.tier.aiven_reader import AivenReader, ChunkedLog
from klog.tier.stores import MissingObjectError
from klog.tier.tier_layout import (
    EPOCHS,
    INDEX,
    LOG,
    MANIFEST,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    BadObjectError,
    EncryptedObjectError,
    SegmentReader,
)

Findings: TypeAlias = Iterator[RemoteFinding]


class Content:
    """An index in memory, read as a file is: see `klog.base.read_only.ReadableLog`."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.size, self._data = path, len(data), data

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on."""
        return self._data[position : position + size]

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes."""
        data = self.read(position, len(view))
        view[: len(data)] = data
        return len(data)

    def next_data(self, position: int) -> int:
        """Return *position*: there are no holes."""
        return position

    def close(self) -> None:
        """Do nothing."""


class SegmentResult(NamedTuple):
    """The findings of a segment, and how much was read."""

    findings: list[RemoteFinding]
    batches: int = 0
    records: int = 0


def check_listing(check: SegmentCheck) -> Findings:
    """Judge names and sizes alone."""
    objects, layout, start = check.objects, check.tier.layout, check.entry.start_offset
    needed = layout.needed if layout is not None else (LOG,)
    missing = [kind for kind in needed if objects is None or kind not in objects.sizes]
    for kind in missing:
        is_index = kind not in (LOG, "rsm-manifest")
        finding_id = "remote-index-missing" if is_index else "remote-log-missing"
        if not is_index or LOG not in missing:
            yield check.finding(finding_id, kind, f"no {kind}", offset=start)
    if objects is None or layout is None or layout.name != "local":
        return
    size = objects.sizes.get(LOG)
    if size is not None and size != check.entry.size:
        yield check.finding(
            "remote-size-differs", LOG, f"{size} bytes, {check.entry.size} in the metadata", offset=start
        )
    if check.needs_txn_index and TXN_INDEX not in objects.sizes:
        yield check.finding("remote-txn-index-missing", TXN_INDEX, "its entry has aborted transactions")
    for kind, finding_id in ((EPOCHS, "remote-epochs-missing"), (SNAPSHOT, "remote-snapshot-missing")):
        if kind not in objects.sizes:
            yield check.finding(finding_id, kind, f"no {kind}")


def check_segment(
    check: SegmentCheck, options: SurveyOptions | None, sink: Sink, before: bytes | None = None
) -> SegmentResult:
    """Check a segment; *options*: how its log is read, None for names and sizes alone.

    *before*: the producer snapshot at its start; None if unknown.
    """
    found = list(check_listing(check))
    blocking = ("remote-log-missing", "remote-index-missing")
    has_log = not any(one.id == blocking[0] for one in found)
    if options is None or check.objects is None or not has_log:
        return SegmentResult(found)
    reader = check.tier.reader(check.objects)
    parts, faults = _parts(check, reader)
    found += faults
    if any(one.id == "remote-encrypted" for one in found):
        return SegmentResult(found)
    facts, start, is_malformed = None, check.entry.start_offset, False
    known = [] if before is None else [("", start, read_snapshot(before, crc32c))]
    replay = SegmentProducers(start, check.entry.end_offset, known)
    try:
        log = reader.log()
        try:
            facts = _survey(check, log, parts, options, sink, replay)
            is_malformed = isinstance(log, ChunkedLog) and log.is_malformed
        finally:
            log.close()
        is_listed = any(one.id == "remote-size-differs" for one in found)
        found += of_log(check, facts, is_listed=is_listed, is_malformed=is_malformed)
    except (KlogError, OSError) as error:
        found.append(_refused(check, LOG, error))
    found += [*_small_parts(check, parts, replay), *_manifest(check, reader)]
    if facts is not None and facts.unreadable is None and not facts.damages:
        found += _transactions(check, reader, parts.get(TXN_INDEX), replay)
    counts = (facts.survey.batches, facts.survey.records) if facts is not None else (0, 0)
    return SegmentResult(found, *counts)


def _refused(check: SegmentCheck, part: str, error: Exception) -> RemoteFinding:
    """Return the finding for a part that could not be read."""
    if isinstance(error, EncryptedObjectError):
        return check.finding("remote-encrypted", part, error.reason)
    cause = error.__cause__ if isinstance(error, OSError) and isinstance(error.__cause__, BadObjectError) else error
    if isinstance(cause, BadObjectError):
        found = check.finding("remote-object-malformed", part, cause.reason, offset=check.entry.start_offset)
        return found._replace(file=cause.key)
    return check.finding("unreadable", part, str(error))


def _parts(check: SegmentCheck, reader: SegmentReader) -> tuple[dict[str, bytes], list[RemoteFinding]]:
    """Return the small parts that can be read, and the findings of the others, each kind of fault once."""
    parts: dict[str, bytes] = {}
    found: dict[tuple[str, str], RemoteFinding] = {}
    for part in (INDEX, TIME_INDEX, TXN_INDEX, EPOCHS, SNAPSHOT):
        try:
            content = reader.read(part)
            if content is not None:
                parts[part] = content
        except MissingObjectError:
            continue  # the listing told
        except KlogError as error:
            one = _refused(check, part, error)
            found.setdefault((one.id, one.message), one)
    return parts, list(found.values())


def _survey(
    check: SegmentCheck,
    log: ReadableLog,
    parts: dict[str, bytes],
    options: SurveyOptions,
    sink: Sink,
    replay: SegmentProducers,
) -> SegmentFacts:
    entry = check.entry
    indexes = tuple(Content(check.key(part), parts[part]) if part in parts else None for part in (INDEX, TIME_INDEX))
    files = SegmentFiles(entry.start_offset, log.size, check.key(LOG), INDEX, TIME_INDEX, None)
    return survey_log(log, files, entry.end_offset + 1, (indexes[0], indexes[1]), options, sink, replay)


def of_log(check: SegmentCheck, facts: SegmentFacts, *, is_listed: bool, is_malformed: bool = False) -> Findings:
    """Judge the log and its indexes, after the pass over them.

    *is_listed*: that its size differs is known.  *is_malformed*: the bytes that could not be read are malformed chunks.
    """
    entry, survey = check.entry, facts.survey
    if facts.unreadable is not None:
        yield _refused(
            check,
            LOG,
            facts.unreadable.__cause__ if isinstance(facts.unreadable.__cause__, OSError) else facts.unreadable,
        )
        return
    if facts.size != entry.size and not is_listed:
        message = f"{facts.size} bytes, {entry.size} in the metadata"
        yield check.finding("remote-size-differs", LOG, message, offset=entry.start_offset)
    first, last = survey.first_offset, survey.last_offset
    if survey.batches and (first < entry.start_offset or last > entry.end_offset):
        message = f"its batches have {offsets_text(first, last)}"
        yield check.finding("remote-wrong-log", LOG, message, offset=entry.start_offset)
        return
    yield from log_findings(check, facts, is_malformed=is_malformed)
    yield from index_findings(check, facts)
    for epoch, offset, position in survey.epochs:
        said = next((one.epoch for one in reversed(entry.epochs) if one.start_offset <= offset), None)
        if said != epoch and offset <= check.last:
            message = f"the batch at offset {offset} has epoch {epoch}, the entry has {said} there"
            yield check.finding("remote-epochs-differ", LOG, message, position, offset)
            return


def _small_parts(check: SegmentCheck, parts: dict[str, bytes], replay: SegmentProducers) -> Findings:
    """Judge the transaction index, the snapshot and the epochs."""
    entry = check.entry
    if (index := parts.get(TXN_INDEX)) is not None:
        yield from txn_index_findings(check, index)
    if (content := parts.get(SNAPSHOT)) is not None:
        snapshot = read_snapshot(content, crc32c)
        if snapshot.problem is not None:
            yield check.finding("snapshot-corrupt", SNAPSHOT, snapshot.problem.strip(), 0, entry.end_offset + 1)
        elif (message := snapshot_contradiction(snapshot, entry.end_offset, replay.last)) is not None:
            yield check.finding("snapshot-disagrees", SNAPSHOT, message, offset=entry.end_offset + 1)
    if (content := parts.get(EPOCHS)) is not None:
        epochs = read_epochs(content)
        if epochs.malformed is not None or not epochs.entries:
            yield check.finding("remote-epochs-malformed", EPOCHS, str(epochs.malformed or "it has no entry"))
        else:
            yield from _epochs(check, epochs_in_force(epochs.entries))


def _manifest(check: SegmentCheck, reader: SegmentReader) -> Findings:
    """Compare the segment metadata in a manifest with the entry."""
    try:
        found = reader.manifest.metadata if isinstance(reader, AivenReader) else None
    except KlogError:
        return  # the parts of the segment told
    if found is None:
        return
    entry, whose = check.entry, check.whose
    partition = {"topicId": whose.topic_id, "topicPartition": {"topic": whose.topic, "partition": whose.number}}
    expected = {
        "remoteLogSegmentId": {"topicIdPartition": partition, "id": entry.segment_id},
        "startOffset": entry.start_offset,
        "endOffset": entry.end_offset,
        "maxTimestampMs": entry.max_timestamp,
        "brokerId": entry.broker,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in entry.epochs},
        "txnIdxEmpty": entry.txn_index_empty,
    }
    for name, value in expected.items():
        given = found.get(name, False if name == "txnIdxEmpty" else None)  # plugins built against 3.9 have none
        if given != value or type(given) is not type(value):
            message = f"its segment metadata have another {name} than the entry"
            yield check.finding("remote-manifest-differs", MANIFEST, message)
            return
    if type(found.get("eventTimestampMs")) is not int:
        yield check.finding("remote-manifest-differs", MANIFEST, "its segment metadata have no eventTimestampMs")


def _transactions(
    check: SegmentCheck, reader: SegmentReader, index: bytes | None, replay: SegmentProducers
) -> Findings:
    """Judge the transaction index; the log is read again if the producers at its start are unknown."""
    aborted = [txn for txn in replay.ended.of(check.key(LOG)) if txn.aborted]
    if not replay.is_guess or not replay.is_transactional:
        yield from _aborted(check, index, aborted, is_certain=not replay.is_guess)
        return
    try:
        log = reader.log()
        try:
            markers = abort_markers(log)
        finally:
            log.close()
    except (KlogError, OSError):
        return  # the first pass found it readable: the tier changes, or does not answer any more
    yield from _aborted(check, index, aborted, is_certain=False, markers=markers)


def _aborted(
    check: SegmentCheck,
    index: bytes | None,
    aborted: Sequence[CompletedTxn],
    *,
    is_certain: bool,
    markers: Collection[int] = (),
) -> Findings:
    """Compare the transaction index with the aborted transactions of the log.

    *is_certain*: the producers at the start of the segment were known, so that entries are as the log shows them.
    *markers*: the offsets of all ABORT markers otherwise; also those of transactions that began before the segment.
    """
    ends = sorted({*markers, *(txn.last_offset for txn in aborted)})
    if index is None:
        if ends and not check.needs_txn_index:
            message = f"the log has {counted(len(ends), 'ABORT marker')}"
            yield check.finding("remote-txn-index-missing", TXN_INDEX, message, offset=ends[0])
        return
    said = {entry[1:4:2]: entry for entry in map(AbortedTxn._make, ABORTED_TXN.read_all(index))}
    for txn in aborted:
        entry = said.pop((txn.producer_id, txn.last_offset), None)
        if entry is None or (is_certain and entry != txn.index_entry):
            shown = offsets_text(txn.first_offset, txn.last_offset)
            message = f"producer {txn.producer_id} aborted {shown}; {'no' if entry is None else 'another'} entry for it"
            yield check.finding("txn-index-disagrees", TXN_INDEX, message, offset=txn.last_offset)
    known = {entry.last_offset for entry in said.values()}
    for end in sorted({*markers} - known - {txn.last_offset for txn in aborted}):
        message = f"an ABORT marker at offset {end}; no entry for it"
        yield check.finding("txn-index-disagrees", TXN_INDEX, message, offset=end)
    for entry in said.values():
        if entry.last_offset in markers:
            continue
        message = f"an entry for producer {entry.producer_id} without an ABORT marker"
        yield check.finding("txn-index-disagrees", TXN_INDEX, message, offset=entry.last_offset)


def txn_index_findings(check: SegmentCheck, content: bytes) -> Findings:
    """Judge a transaction index by itself."""
    rest = len(content) % ABORTED_TXN.size
    if rest:
        message = f"{len(content)} bytes, not a multiple of {ABORTED_TXN.size}"
        yield check.finding("txn-index-ragged", TXN_INDEX, message, len(content) - rest)
    last = check.entry.start_offset - 1
    for slot, (version, _, first_offset, last_offset, _) in enumerate(ABORTED_TXN.read_all(content)):
        at = slot * ABORTED_TXN.size
        if version != 0:
            yield check.finding("txn-index-version", TXN_INDEX, f"entry {slot} is of version {version}", at)
            return
        if not (last < last_offset <= check.entry.end_offset and 0 <= first_offset <= last_offset):
            message = f"entry {slot} is for offsets {first_offset}–{last_offset}"
            yield check.finding("txn-index-order", TXN_INDEX, message, at, last_offset)
        last = max(last, last_offset)


def _epochs(check: SegmentCheck, stored: list[EpochEntry]) -> Findings:
    """Compare the tier's epochs with those of the entry, and with the local history up to the segment's end."""
    entry = check.entry
    until = [one for one in stored if one.start_offset <= check.last]
    own = [one for one in entry.epochs if one.start_offset <= check.last]
    for one in own:
        said = next((each.epoch for each in reversed(until) if each.start_offset <= one.start_offset), None)
        if said != one.epoch and one.start_offset != (own[own.index(one) + 1].start_offset if one != own[-1] else None):
            message = f"epoch {said} at offset {one.start_offset}, the entry has epoch {one.epoch}"
            yield check.finding("remote-epochs-differ", EPOCHS, message, offset=one.start_offset)
            return
    local = [one for one in check.local_epochs if one.start_offset <= check.last]
    trimmed = [one for one in until if not local or one.epoch > local[0].epoch]
    first = next((one.start_offset for one in until if local and one.epoch == local[0].epoch), None)
    if local and (first is None or first > local[0].start_offset):
        message = f"epoch {local[0].epoch} begins at {first}, in the local history at {local[0].start_offset}"
        yield check.finding("remote-epochs-differ", EPOCHS, message)
    elif local and trimmed != local[1:]:
        shown = ", ".join(f"{epoch} from {start}" for epoch, start in trimmed) or "none"
        message = f"behind epoch {local[0].epoch} it has {shown}; the local history is another"
        yield check.finding("remote-epochs-differ", EPOCHS, message)
