"""A finding of `klog remote verify`, and the table of all that only it can find.

Ids never change and are never reused; `docs/findings.md` is generated from this table.  A fault that a local file can
have as well has the id of `klog verify`; a broker reacts to it in another way.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from klog.partition.verify.findings import KINDS, FindingKind, Severity

_N, _W, _D = Severity.NOTE, Severity.WARNING, Severity.DAMAGE
STOPS: Final = "cannot read this segment: consumers stop at its first offset for ever, because the error is answered again and again"
_NOTHING: Final = "does nothing"
_REBUILD: Final = (
    "does not read it, until a follower has to rebuild its log from this segment: that follower then never catches up"
)

_TABLE: Final = (
    FindingKind("remote-log-missing", _D, "a segment that serves, without its log; in the layout of Aiven's plugin also without its manifest", STOPS),
    FindingKind("remote-index-missing", _D, "a segment that serves, without its offset index or time index", STOPS),
    FindingKind("remote-txn-index-missing", _D, "a segment with aborted transactions, without its transaction index", "hands out aborted records to consumers of committed data, without an error"),
    FindingKind("remote-object-malformed", _D, "an object that its layout does not allow: a manifest, a chunk, or a wrong key", STOPS),
    FindingKind("remote-size-differs", _D, "a log with another size than in the metadata", "serves the bytes that are there. A shorter log: skips the rest without an error; a longer one: consumers fail behind the last batch"),
    FindingKind("remote-wrong-log", _D, "a log whose batches do not have the offsets of its entry", "skips offsets without an error, or serves some twice"),
    FindingKind("remote-hole", _D, "offsets between the log start and the local log that no finished segment of the partition's history has", "answers OFFSET_OUT_OF_RANGE"),
    FindingKind("remote-metadata-lost", _D, "the log starts below the local log, or the tier has objects of the topic, and `__remote_log_metadata` has no record of the partition", "moves the log start to the local log at its next start; the objects stay for ever"),
    FindingKind("remote-metadata-malformed", _D, "a record of `__remote_log_metadata` that Kafka's classes refuse", "stops to read the topic: it copies, finds and deletes no segment any more"),
    FindingKind("remote-local-gone", _D, "finished segments in the metadata, and a local log that is missing, or begins and ends at 0", "deletes all of these segments within one task interval, if it leads the partition"),
    FindingKind("remote-local-differs", _D, "both tiers have an offset, in different batches", "serves the local one, until it is deleted"),
    FindingKind("remote-dead-tail", _D, "a segment that serves, and has more offsets behind the end of its epoch in the partition's history (unclean election)", "hands out these offsets of the dead branch to consumers that read on, and those of the history to consumers that start there; klog reads the history"),
    FindingKind("remote-epochs-differ", _W, "epochs of the tier's `leader_epoch_checkpoint` or of the entry that are not those of the local log or of the batches", "does not check this; a follower that has to rebuild its log takes them over"),
    FindingKind("remote-epochs-missing", _W, "no `leader_epoch_checkpoint`", _REBUILD),
    FindingKind("remote-epochs-malformed", _W, "a `leader_epoch_checkpoint` that a broker refuses", _REBUILD),
    FindingKind("remote-manifest-differs", _W, "a manifest of Aiven's plugin, the segment metadata in which are not those of the entry", "does not read them; without `__remote_log_metadata` they are all that is known of the segment"),
    FindingKind("remote-snapshot-missing", _W, "no producer snapshot", _REBUILD),
    FindingKind("remote-delete-unfinished", _W, "DELETE_SEGMENT_STARTED: some of the objects may be gone", "tries again at each task interval"),
    FindingKind("remote-entry-lost", _W, "objects of a segment without an entry, while records of `__remote_log_metadata` that can have been its entry are deleted (retention, DeleteRecords) or unreadable", "reads the segment until its next start; then it moves the log start up to the first segment that it knows, and the objects stay for ever. They can be the only copy: `klog remote attach` writes the entry again"),
    FindingKind("remote-events-expire", _W, "settings of `__remote_log_metadata` delete records before the segments that they are about", "deletes the oldest records, and reads their segments until its next start; then it moves the log start up to the first segment that it knows"),
    FindingKind("remote-orphan", _W, "objects of a segment that no entry owns, or that the metadata call deleted", "does nothing with them, for ever"),
    FindingKind("remote-event-misplaced", _W, "a record in a partition of `__remote_log_metadata` that is not the one of its partition", "reads it only by chance"),
    FindingKind("remote-encrypted", _W, "encrypted objects whose key was not given: only names and sizes were checked", "decrypts them with its own key"),
    FindingKind("remote-copy-unfinished", _N, "COPY_SEGMENT_STARTED: left by a kill or a stop in the middle of a copy", "does not serve it; it stays until retention reaches its offsets"),
    FindingKind("remote-dead-lineage", _N, "a finished segment of an epoch history that the partition does not have (unclean election)", "does not serve it; it stays until the log start has passed its epochs"),
    FindingKind("remote-overlapped", _N, "a finished segment, for all of whose offsets another one is found", "does not serve it; it stays until retention reaches its offsets"),
    FindingKind("remote-below-start", _N, "a finished segment that ends below the log start", "deletes it"),
    FindingKind("remote-event-dropped", _N, "a record that changes nothing: an illegal transition, or an update of an unknown segment", "ignores it"),
    FindingKind("remote-foreign-object", _N, "an object that is not of the tier's layout", _NOTHING),
)  # fmt: skip
REMOTE_KINDS: Final = {kind.id: kind for kind in _TABLE}
_FAILS: Final = "serves the bytes as they are: consumers get an exception at this batch, and do not get beyond it"
_REACTIONS: Final = {
    "torn-tail": "serves the bytes that are there, and goes on behind the segment without an error: the rest is skipped",
    **dict.fromkeys(("zeroed", "garbage-tail"), "serves the bytes as they are: consumers fail behind the last batch"),
    **dict.fromkeys(("bad-crc", "bad-length", "bad-magic", "short-header", "more-damage"), _FAILS),
    **dict.fromkeys(("bad-compression", "bad-record", "unknown-codec", "bad-counts"), _FAILS),
    **dict.fromkeys(("index-ragged", "time-index-ragged"), STOPS),
    **dict.fromkeys(("index-disagrees", "index-order", "index-beyond-log"), "reads from a wrong position when a consumer starts inside the segment"),
    **dict.fromkeys(("snapshot-corrupt", "snapshot-disagrees"), _REBUILD),
    "unreadable": STOPS,
}  # fmt: skip


class RemoteFinding(NamedTuple):
    """Something that was found.  *tier*: remote, local or metadata.

    *file*: the key of the object, or the file below the log dir.  *position*: the first byte that is wrong, *offset*
    Kafka's.  *heading*: the partition, and the segment with its offsets.
    """

    kind: FindingKind
    topic: str | None
    partition: int | None
    tier: str
    segment_id: str | None
    file: str
    position: int | None
    offset: int | None
    message: str
    heading: str

    @property
    def id(self) -> str:
        """The kind's id."""
        return self.kind.id

    @property
    def severity(self) -> Severity:
        """The kind's severity."""
        return self.kind.severity

    @property
    def is_of_log_dir(self) -> bool:
        """Whether it is damage in a log of `__remote_log_metadata`, which `klog verify` finds as well."""
        return self.tier == "metadata" and self.kind.id not in REMOTE_KINDS

    @property
    def broker(self) -> str:
        """The reaction of a broker."""
        if self.is_of_log_dir:
            return self.kind.broker
        return _REACTIONS.get(self.kind.id, self.kind.broker if self.kind.id in REMOTE_KINDS else "does not check this")


def kind_of(finding_id: str) -> FindingKind:
    """Return a kind of this table, or of `klog verify`."""
    return REMOTE_KINDS.get(finding_id) or KINDS[finding_id]
