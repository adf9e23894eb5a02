"""Replays the records of a metadata log or of a snapshot into a state, and notes damage on the way.

replay = Replay(MetadataImage(), Problems())
replay.file("….log", first=0)
replay.state, replay.expected, replay.in_transaction
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.cluster.metadata.metadata_image import MetadataImage
from klog.formats.batch import CONTROL_BIT
from klog.formats.control import Control, control_record
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.internal_topics import MetadataRecord, Undecodable, metadata_record, newest_version
from klog.formats.java_integers import LONG_MAX
from klog.formats.sparing_codec import sparing_codecs
from klog.kernel import Window
from klog.log.segment import Segment

_MOST_PROBLEMS: Final = 20


class Problems:
    """The skipped parts: the first sentences about them.

    *missing*: the state lacks a part of the log.  *gap*: the log begins behind the end of the snapshot.
    """

    def __init__(self) -> None:
        self._first: list[tuple[str, bool]] = []
        self._more = [0, 0]
        self.missing = False
        self.gap = False

    def add(self, sentence: str, missing: bool = True, is_damage: bool = True) -> None:
        """Add a sentence; *is_damage* is False for findings that a sound log may contain, too."""
        self.missing |= missing
        if len(self._first) < _MOST_PROBLEMS:
            self._first.append((sentence, is_damage))
        else:
            self._more[is_damage] += 1

    def take(self, other: Problems) -> None:
        """Take all that *other* has."""
        for sentence, is_damage in other._first:
            self.add(sentence, other.missing, is_damage)
        self._more = [mine + theirs for mine, theirs in zip(self._more, other._more, strict=True)]

    def sentences(self, only_damage: bool = False) -> tuple[str, ...]:
        """Return the sentences, the last of them about how many more there would be."""
        more = self._more[True] if only_damage else sum(self._more)
        found = tuple(sentence for sentence, is_damage in self._first if is_damage or not only_damage)
        return (*found, f"and {more} more") if more else found


class LoggedRecord(NamedTuple):
    """A record of a log or a snapshot; *epoch*: the leader epoch of its batch, *batch*: that batch's base offset."""

    offset: int
    epoch: int
    timestamp: int
    is_control: bool
    key: bytes | None
    value: bytes | None
    batch: int


def read_records(path: str, first: int) -> Iterator[LoggedRecord | Damage]:
    """Yield the records from offset *first* on, in their order, with the damage between them.

    Raises KlogError if the file cannot be opened.
    """
    for rows in Segment(path).record_windows(first, codecs=sparing_codecs()):
        if isinstance(rows, Damage):
            yield rows
            continue
        for found in (logged_record(rows, i) for i in range(rows.records)):
            if found.offset >= first:
                yield found


def logged_record(rows: Window, i: int) -> LoggedRecord:
    """Return record row *i*."""
    offset, timestamp, key, value, _, _, row = rows.record(i, False)
    batch = rows.batch(row)
    is_control = bool(batch.attributes & CONTROL_BIT)
    return LoggedRecord(offset, batch.leader_epoch, timestamp, is_control, key, value, batch.base_offset)


class Replay:
    """Applies records to a state in their order; those of a transaction are applied when it has ended.

    *expected*: the offset after the last record.  *epoch*: its leader epoch, None before the first.
    Kafka: MetadataBatchLoader.
    """

    def __init__(self, state: MetadataImage, problems: Problems, expected: int = 0, epoch: int | None = None) -> None:
        self.state, self.problems, self.expected, self.epoch = state, problems, expected, epoch
        self._waiting: list[tuple[LoggedRecord, str]] | None = None

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._waiting is not None

    def log(self, path: str, first: int, until: int, is_in_use: bool) -> None:
        """Take the records of a segment from offset *first* on and below *until*.

        *is_in_use*: a node is running, and may just be writing at its end.
        """
        for found in self.records(path, first, until):
            if isinstance(found, Damage):
                is_normal = found.is_unfinished and (is_in_use or found.kind is DamageKind.ZEROED_TAIL)
                self.problems.add(str(found), missing=not found.is_unfinished, is_damage=not is_normal)
                continue
            if found.offset != self.expected:
                self.hole(path, found.offset)
            self.record(found, path)

    def records(self, path: str, first: int, until: int = LONG_MAX) -> Iterator[LoggedRecord | Damage]:
        """Yield the records of a file that `record` has to take, see `read_records`; the others are taken already.

        Raises KlogError if the file cannot be opened.
        """
        for rows in Segment(path).record_windows(first, codecs=sparing_codecs()):
            if isinstance(rows, Damage):
                yield rows
                continue
            i = 0
            while i < rows.records:
                if self._waiting is None and (end := self.pass_over(rows, i, until)) > i:
                    self.expected += end - i
                    self.epoch = rows.batch(rows.record(end - 1, False)[-1]).leader_epoch
                    i = end
                    continue
                found = logged_record(rows, i)
                if found.offset >= until:
                    return
                if found.offset >= first:
                    yield found
                i += 1

    def pass_over(self, rows: Window, first: int, until: int) -> int:
        """Skip the records from row *first* on that change nothing; return the first one that does.

        Their offsets are the expected ones, and below *until*.  No transaction is open.
        """
        return self.state.topics.table.take(rows, first, self.expected, until)

    def record(self, found: LoggedRecord, file: str) -> None:
        """Take one record of *file*."""
        self.expected, self.epoch = found.offset + 1, found.epoch
        if found.is_control:
            control = control_record(found.key, found.value)
            if control.failure:
                self._misfit(file, found.offset, f"{control.name or 'a control record'}: {control.failure}")
            else:
                self.apply_control(control, found)
        else:
            self._take(found, file)

    def apply_control(self, control: Control, found: LoggedRecord) -> None:
        """Take a control record into the state: they are in no transaction."""
        self.state.quorum.apply(control.name, control.data, found.epoch)

    def _take(self, found: LoggedRecord, file: str) -> None:
        record = metadata_record(found.value)
        if isinstance(record, Undecodable):
            self._undecodable(record, found, file)
        elif record.version > (newest := newest_version(record.type)):
            # Kafka reads it as the newest version that it knows, with unpredictable results.
            self._misfit(file, found.offset, f"version {record.version} of {record.name}, known are 0 to {newest}")
        elif record.name == "BEGIN_TRANSACTION_RECORD":
            if self._waiting is not None:
                self._misfit(file, found.offset, "a transaction begins inside of another")
            self._waiting = self._waiting or []
        elif record.name in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            if self._waiting is None:
                self._misfit(file, found.offset, "a transaction ends that has not begun")
            elif record.name == "END_TRANSACTION_RECORD":
                self.commit()
            self._waiting = None
        elif self._waiting is not None:
            # They are kept as bytes: decoded they take many times the memory.
            self._waiting.append((found, file))
        else:
            self.apply(record, found, file)

    def apply(self, record: MetadataRecord, found: LoggedRecord, file: str) -> None:
        """Take a record into the state that is in no open transaction."""
        if misfit := self.state.apply(record):
            self._misfit(file, found.offset, f"{record.name}: {misfit}")

    def _undecodable(self, record: Undecodable, found: LoggedRecord, file: str) -> None:
        if record.unknown_type is not None:
            self.state.unknown[record.unknown_type] = self.state.unknown.get(record.unknown_type, 0) + 1
        is_damage = record.unknown_type is None
        self._misfit(file, found.offset, str(record.message), is_damage)

    def _misfit(self, file: str, offset: int, what: str, is_damage: bool = True) -> None:
        self.problems.add(f"{Location(file, offset=offset)}: {what}", is_damage=is_damage)

    def hole(self, file: str, found: int) -> None:
        """Note that records are missing: the next offset is *found*."""
        self.problems.add(f"{file}: offset {found} where {self.expected} was expected")
        self.expected = found
        # The end of the transaction may have been there; few are aborted.
        self.commit()

    def commit(self) -> None:
        """Apply the pending records; without an open transaction there are none."""
        waiting, self._waiting = self._waiting or [], None
        for found, file in waiting:
            self._take(found, file)
