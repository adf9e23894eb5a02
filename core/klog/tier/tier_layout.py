"""Which object is which part of a segment, and how to read its plain bytes: the protocol of layouts.

Keys are the storage manager's own.  The log of a segment is read by position, as a local file is; the other parts are
small and read as a whole.  An object that is missing, malformed or encrypted raises; a caller that judges catches it.
"""

from __future__ import annotations

from sys import intern
from typing import Final, NamedTuple, Protocol

from klog.base.errors import ExitCode, KlogError
from klog.base.read_only import ReadableLog
from klog.tier.stores import Store

LOG, INDEX, TIME_INDEX, TXN_INDEX = "log", "index", "timeindex", "txnindex"
EPOCHS, SNAPSHOT = "leader_epoch_checkpoint", "snapshot"
INDEXES, MANIFEST = "indexes", "rsm-manifest"
"""Objects of the layout `aiven` beside the log."""
PARTS: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX, EPOCHS, SNAPSHOT)
"""The parts of a segment, whatever the layout.  Kafka: LogSegmentData."""
TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
ID: Final = r"[A-Za-z0-9_-]{22}"
MOST_PART_BYTES: Final = 64 << 20
"""No index, snapshot or checkpoint reaches this size."""


class BadObjectError(KlogError):
    """An object's content is not that of its layout.  *key*: of the object; *reason*: its fault, without the key."""

    exit_code = ExitCode.PROBLEMS_LEFT

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key, self.reason = key, reason


class EncryptedObjectError(BadObjectError):
    """The key of an encrypted object was not given."""


class ObjectName(NamedTuple):
    """The meaning of a key: *kind* of object, of which segment of which partition.

    *topic* may have a key prefix in front, if the prefix does not end with `/`: the id identifies the topic.
    """

    topic: str
    number: int
    topic_id: str
    start_offset: int
    segment_id: str
    kind: str

    @property
    def stem(self) -> str:
        """The end of the key without its kind."""
        return f"{self.start_offset:020}-{self.segment_id}"


class TierSegment:
    """The objects of a segment.  *sizes*: bytes by kind; *modified_ms*: when the last one was stored.

    *folder*: the beginning of the keys; *others*: keys that have another one, as behind a change of the key prefix.  A
    tier may have a million objects, so that keys are put together when they are needed.
    """

    __slots__ = ("folder", "modified_ms", "others", "segment_id", "sizes", "start_offset")

    def __init__(self, segment_id: str, start_offset: int) -> None:
        self.segment_id, self.start_offset = segment_id, start_offset
        self.folder, self.modified_ms = "", 0
        self.sizes: dict[str, int] = {}
        self.others: dict[str, str] | None = None

    @property
    def keys(self) -> dict[str, str]:
        """The keys by kind."""
        return {kind: f"{self.folder}{self._name(kind)}" for kind in self.sizes} | (self.others or {})

    def _name(self, kind: str) -> str:
        return f"{self.start_offset:020}-{self.segment_id}.{kind}"

    def add(self, kind: str, key: str, size: int, modified_ms: int) -> None:
        """Add an object."""
        folder = intern(key.removesuffix(self._name(kind)))
        self.folder = self.folder or folder
        if folder != self.folder:
            self.others = (self.others or {}) | {kind: key}
        self.sizes[intern(kind)] = size
        self.modified_ms = max(self.modified_ms, modified_ms)


class SegmentReader(Protocol):
    """The plain bytes of one segment.  Raises MissingObjectError, BadObjectError, UnreadableError."""

    def log(self) -> ReadableLog:
        """Open the log; its size is that of the plain bytes."""

    def read(self, part: str) -> bytes | None:
        """Return one of PARTS but the log; None if the segment has none, as most have no transaction index."""


class TierLayout(Protocol):
    """The naming and encoding of a storage manager."""

    @property
    def name(self) -> str:
        """Its name in options and results."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its objects."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The kinds without which a broker cannot read a segment."""

    def parse(self, key: str) -> ObjectName | None:
        """Return the meaning of a key; None for one that is not of this layout."""

    def reader(self, store: Store, segment: TierSegment) -> SegmentReader:
        """Return a reader of a segment's objects."""


class DataKey(Protocol):
    """A key that decrypts the chunks of one segment."""

    def decrypt(self, data: bytes, aad: bytes) -> bytes:
        """Return the plain bytes of `IV | ciphertext | tag`.  Raises ValueError if they are not authentic."""


class Keys(Protocol):
    """The private keys that a user has given."""

    def data_key(self, wrapped: str) -> DataKey | None:
        """Return the key that a manifest has as `KEYID:BASE64`; None if there is no private key of this id.

        Raises ValueError if the private key does not fit, or the text is malformed.
        """
