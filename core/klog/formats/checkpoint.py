"""The text files: offset checkpoints, leader epochs, a partition's metadata.

    0                   version                  version: 0
    2                   number of entries        topic_id: rJv2bIYmQBmpTVV5UtZBLw
    orders 3 1841       topic partition offset   (partition.metadata; no line end after the last line)
    orders 4 0

`leader-epoch-checkpoint` has the same frame around entries of two numbers: epoch, start offset.  A file of 0 bytes is
valid and has no entries: brokers create these files empty.

A line that a broker would refuse is a value here, `Malformed`, and never an exception: such a file takes a broker's log
dir offline, or prevents its start, and callers report the line and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

from klog.formats.java_text import ZERO_UUID, lines, parse_int, parse_uuid, rows

VERSION: Final = 0
"""The only version of all these files."""


class Malformed(NamedTuple):
    """Why a broker would refuse a file: the line, counted from 1 (0: the file as a whole), and the reason."""

    line: int
    reason: str

    @property
    def is_unchecked(self) -> bool:
        """Whether a broker meets it with an exception other than IOException: that takes no log dir offline.

        It ends the broker, or is swallowed.  Kafka: EntryFormatter.fromString, PartitionMetadataReadBuffer.read.
        """
        return self.reason.endswith(_UNCHECKED)

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason


class OffsetEntry(NamedTuple):
    """A line of one of the four checkpoint files of a log dir."""

    topic: str
    partition: int
    offset: int


class EpochEntry(NamedTuple):
    """A line of `leader-epoch-checkpoint`: the epoch covers offsets from *start_offset* up to the next epoch's."""

    epoch: int
    start_offset: int


_NO_NUMBERS: Final = "is not a number"
_NEGATIVE: Final = "has a negative number"
_NO_FILE: Final = "the file is empty"
_NO_SECOND_LINE: Final = "there is no line with a topic id"
_NO_UUID: Final = "gives an id that is none"
_UNCHECKED: Final = (_NO_NUMBERS, _NEGATIVE, _NO_FILE, _NO_SECOND_LINE, _NO_UUID)
_USUAL_BYTES: Final = 100

_OFFSET: Final = ("topic", "partition", "offset")
_EPOCH: Final = ("epoch", "start offset")

EntryT = TypeVar("EntryT", OffsetEntry, EpochEntry)


class Checkpoint(Generic[EntryT]):
    """The entries of a checkpoint file in their order, repeated keys included.

    If *malformed* is set, a broker uses none of them, and they are the entries before the bad line.
    """

    entries: tuple[EntryT, ...]
    malformed: Malformed | None

    def __init__(self, entries: tuple[EntryT, ...] = (), malformed: Malformed | None = None) -> None:
        self.entries = entries
        self.malformed = malformed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and (self.entries, self.malformed) == (other.entries, other.malformed)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Checkpoint({self.entries!r}, {self.malformed!r})"


def read_offsets(content: bytes, wanted: Container[tuple[str, int]] | None = None) -> Checkpoint[OffsetEntry]:
    """Read one of the four checkpoint files of a log dir.  Kafka: OffsetCheckpointFile.

    *wanted*: topics and partitions; entries of others are checked and not kept.  None: all are wanted.
    """
    return _read(content, OffsetEntry, _OFFSET, wanted)


def offset_entries(content: bytes) -> list[OffsetEntry]:
    """Return every line of *content* that is an entry, whatever the rest of the file is: for one that is refused."""
    return [
        OffsetEntry(fields[0], partition, offset)
        for _, fields, partition, offset in rows(lines(content.decode("utf-8", "replace")))
        if len(fields) == len(_OFFSET) and partition is not None and offset is not None
    ]


def read_epochs(content: bytes) -> Checkpoint[EpochEntry]:
    """Read a `leader-epoch-checkpoint` line by line; `epochs_in_force` returns the entries that a broker would use.

    A negative number is malformed as well.  Kafka: LeaderEpochCheckpointFile, LeaderEpochFileCache.assign.
    """
    return _usual_epochs(content) if len(content) <= _USUAL_BYTES else _epochs(content)


@lru_cache(maxsize=64)
def _usual_epochs(content: bytes) -> Checkpoint[EpochEntry]:
    return _epochs(content)  # thousands of partitions have the same


def _epochs(content: bytes) -> Checkpoint[EpochEntry]:
    found = _read(content, EpochEntry, _EPOCH)
    if found.malformed is None:
        for index, entry in enumerate(found.entries):
            if entry.epoch < 0 or entry.start_offset < 0:
                reason = f"leader epoch entry {entry.epoch} {entry.start_offset} {_NEGATIVE}"
                return Checkpoint(found.entries[:index], Malformed(index + 3, reason))
    return found


def offsets_by_partition(checkpoint: Checkpoint[OffsetEntry]) -> dict[tuple[str, int], int]:
    """Return the offset of each topic and partition; the last of several lines counts.

    Empty if the file is malformed: a broker then continues without entries, or does not start.
    """
    if checkpoint.malformed is not None:
        return {}
    return {(entry.topic, entry.partition): entry.offset for entry in checkpoint.entries}


def epochs_in_force(entries: Iterable[EpochEntry]) -> list[EpochEntry]:
    """Return the entries that a broker keeps: an entry drops earlier ones with its epoch or start, or a higher one.

    Epochs and start offsets of the result ascend strictly.  Kafka: LeaderEpochFileCache.assign.
    """
    kept: list[EpochEntry] = []
    for entry in entries:
        if kept and entry.epoch == kept[-1].epoch and entry.start_offset >= kept[-1].start_offset:
            continue
        while kept and (kept[-1].epoch >= entry.epoch or kept[-1].start_offset >= entry.start_offset):
            kept.pop()
        kept.append(entry)
    return kept


def write_offsets(entries: Iterable[OffsetEntry]) -> bytes:
    """Return the content of a checkpoint file of a log dir.

    Without directories whose names are not UTF-8: no topic has such a name.
    """
    return _write(f"{topic} {partition} {offset}" for topic, partition, offset in entries if _is_utf8(topic))


def _is_utf8(name: str) -> bool:
    return name.encode("utf-8", "ignore").decode() == name


def write_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the content of a `leader-epoch-checkpoint`."""
    return _write(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def _write(entries: Iterable[str]) -> bytes:
    texts = list(entries)
    return "".join(f"{line}\n" for line in (VERSION, len(texts), *texts)).encode()


def _read(
    content: bytes,
    entry_of: Callable[..., EntryT],
    names: tuple[str, ...],
    wanted: Container[tuple[str, int]] | None = None,
) -> Checkpoint[EntryT]:
    """Read the common frame around entries of fields with *names*.  Kafka: CheckpointFile.

    A line is freed before the next one is read: a file of millions of lines costs only the kept ones.
    """
    text = decode(content)
    if isinstance(text, Malformed):
        return Checkpoint((), text)
    found = lines(text)
    first, second = next(found, None), next(found, None)
    if first is None:
        return Checkpoint()
    version = parse_int(first)
    if version is None:
        return Checkpoint((), Malformed(1, f"{shorten(first)} is not a version"))
    if version != VERSION:
        return Checkpoint((), Malformed(1, f"version {version}, expected {VERSION}"))
    if second is None:
        return Checkpoint()
    count = parse_int(second)
    if count is None or count < 0:
        return Checkpoint((), Malformed(2, f"{shorten(second)} is not a number of entries"))
    entries: list[EntryT] = []
    number = 2
    for number, (line, fields, small, large) in enumerate(rows(found), start=3):
        if len(fields) != len(names) or small is None or large is None:
            return Checkpoint(tuple(entries), Malformed(number, f"{shorten(line)}: {_flaw(names, fields)}"))
        entry = entry_of(*fields[:-2], small, large)
        if wanted is None or entry[:2] in wanted:
            entries.append(entry)
    if number - 2 != count:
        return Checkpoint(tuple(entries), Malformed(2, f"{count} entries announced, {number - 2} found"))
    return Checkpoint(tuple(entries))


def _flaw(names: tuple[str, ...], fields: list[str]) -> str:
    if len(fields) != len(names):
        return f"{len(fields)} fields, expected {', '.join(names)}"
    return f"{names[-2]} or {names[-1]} {_NO_NUMBERS}"


class PartitionMetadata(NamedTuple):
    """The content of `partition.metadata`; *topic_id* in its 22 letters."""

    version: int
    topic_id: str


def read_partition_metadata(content: bytes) -> PartitionMetadata | Malformed:
    """Read `partition.metadata`; lines after the second do not count.  Kafka: PartitionMetadataReadBuffer."""
    text = decode(content)
    if isinstance(text, Malformed):
        return text
    found = lines(text)
    first, second = next(found, None), next(found, None)
    if first is None:
        return Malformed(1, _NO_FILE)
    version = parse_int(_after_colon(first))
    if version is None or version < VERSION:
        return Malformed(1, f"{shorten(first)} gives no version")
    if second is None:
        return Malformed(2, _NO_SECOND_LINE)
    text_id = _after_colon(second)
    topic_id = parse_uuid(text_id)
    if topic_id is None and text_id:
        return Malformed(2, f"{shorten(second)} {_NO_UUID}")
    if topic_id is None or topic_id == ZERO_UUID:
        return Malformed(2, f"{shorten(second)} gives no topic id")
    return PartitionMetadata(version, topic_id)


def write_partition_metadata(topic_id: str) -> bytes:
    """Return the content of `partition.metadata`.  Kafka: PartitionMetadata.encode."""
    return f"version: {VERSION}\ntopic_id: {topic_id}".encode()


def _after_colon(line: str) -> str:
    """Return the second of two pieces between colons that blanks follow; nothing when there are more or fewer.

    Kafka: Pattern.compile(":\\s+").split.
    """
    pieces, rest = [], line.replace("\t", " ").replace("\x0b", " ").replace("\f", " ")
    while ": " in rest:
        piece, _, rest = rest.partition(": ")
        pieces.append(piece)
        rest = rest.lstrip(" ")
    pieces.append(rest)
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces[1] if len(pieces) == 2 else ""


def decode(content: bytes) -> str | Malformed:
    """Return *content* as text, or the place where it is not UTF-8: a broker then refuses the whole file."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        return Malformed(sum(1 for _ in lines(f"{before}.")), f"byte 0x{content[error.start]:02x} is not UTF-8")


def shorten(text: str) -> str:
    """Return *text* quoted, at most 60 letters of it, so that a broken file cannot flood a message."""
    return repr(text if len(text) <= 60 else f"{text[:57]}…")
