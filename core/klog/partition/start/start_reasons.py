"""The reasons why a broker's start fails or loses data: every id with the broker's reaction, the cause and the remedy.

Ids never change and are never reused; the table in `docs/doctor.md` is generated from this one, and `klog verify` takes
its descriptions of a broker's reaction from here if both concern the same fault.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class StartReason(NamedTuple):
    """A reason.  *broker*: the broker's reaction, with versions if they differ.  *cause*: the origin of the fault."""

    id: str
    broker: str
    cause: str
    cure: str


class StartFailure(NamedTuple):
    """Why the broker does not start: *id* of the reason, and the log dir and the directory in it that it is about."""

    id: str
    message: str
    log_dir: str | None = None
    directory: str | None = None


class StartNote(NamedTuple):
    """Something to know that has no row: the worst first."""

    id: str
    message: str


CHECKPOINT_NUMBER: Final = "checkpoint-number"
"""The id of the notes about checkpoints that a broker passes over."""
WATERMARK_NUMBER: Final = "high-watermark-number"
"""The id of the reason why a broker leads nothing although it starts."""
_OUT = "move the directory out of every log dir"

_TABLE = (
    # meta.properties
    StartReason("cluster-id-differs", "does not start if two log dirs differ; compares it with nothing else, but the other nodes of a quorum refuse the broker", "a disk of another cluster", "take the log dir out of `log.dirs`"),
    StartReason("node-id-differs", "does not start", "a disk of another broker, or a changed `node.id`", "start the broker whose disk it is"),
    StartReason("meta-properties-missing", "does not start; before KRaft: formats the log dir", "a new disk that was not formatted, a missing mount", "`kafka-storage format --ignore-formatted`; for a disk with partitions, write the file again with the `directory.id` that `next` names"),
    StartReason("meta-properties-malformed", "does not start if it is the metadata log dir; otherwise the log dir goes offline", "a truncated or edited file, a version other than 0 and 1", "write the file again"),
    StartReason("directory-id-twice", "does not start", "a cloned disk", "give the clone the id that the metadata log has for it, or remove it from `log.dirs`"),
    StartReason("directory-id-reserved", "does not start", "an edited file", "remove the line: the broker then creates a new id"),
    StartReason("directory-id-unknown", "loads the partitions, and creates the missing ones empty; they may stay without a leader until another start", "the line `directory.id` was changed or removed, or is older than the metadata log (an old backup, a file of version 0); or the log dir is not in `log.dirs`", "write the id that `next` names into the file again, or mount the log dir"),
    StartReason("log-dir-unusable", "the log dir goes offline; does not start if it is the metadata log dir or the last one", "a file in its place, missing permission, a failing disk, a file system without free blocks or inodes", "repair or mount it, or free room: `klog space --free`"),
    StartReason("log-dir-read-only", "does not start if it is the metadata log dir or the last one; otherwise the log dir goes offline", "a file system that is mounted read-only here: a copy, or a disk on which the kernel has found errors", "mount it for writing, if the broker is to start on it"),
    StartReason("lock-held", "does not start", "a broker is running on the log dir, or klog is changing it", "stop that process; the answer describes the next start"),
    # the metadata log
    StartReason("metadata-log-missing", "starts as an empty cluster, and sets every partition aside as -stray; if other voters are alive, fetches the log again", "`__cluster_metadata-0` was lost or emptied; the data is from a ZooKeeper-era broker", "restore the directory from another controller, or from a backup that is not older than the logs, before the first start; to migrate from ZooKeeper, use a bridge release (3.9)"),
    StartReason("metadata-log-damaged", "truncates the log at the damage: topics created later become stray, topics deleted later exist again", "a bad sector, a flipped bit, a lost write", "restore the directory from another controller, or from a backup that is not older than the logs, before the first start"),
    StartReason("metadata-log-behind", "gives out producer ids that are already in use: batches of new producers are acknowledged and not appended, or refused; forgets leader epochs, or uses one twice", "`__cluster_metadata-0` is from an older backup, or damaged: the logs have leader epochs or producer ids that it does not have", "use the metadata log of another node that is not behind; if there is none, `klog metadata plan` appends the missing records"),
    StartReason("metadata-log-elsewhere", "does not start", "`metadata.log.dir` was changed, or a disk is another node's", "move the unused directory out of the log dir, or name its log dir in `metadata.log.dir`"),
    StartReason("metadata-version-unsupported", "does not start", "a downgrade: the cluster's `metadata.version` is newer than the broker; or an upgrade to 4.x of a cluster that still has one below 3.3-IV3", "start a version that has this `metadata.version`; to upgrade, raise it with `kafka-features` under 3.9 first"),
    StartReason("metadata-log-refused", "does not start", "segments and snapshots that do not fit together", "restore the directory from another controller, or from a backup that is not older than the logs"),
    StartReason("metadata-snapshot-damaged", "does not start: it reads the newest snapshot, and no older one", "a flipped bit, a truncated or emptied `.checkpoint` file in `__cluster_metadata-0`", "move the file out if an older snapshot and the log have the rest, as `next` says; otherwise restore the directory from another controller"),
    StartReason("bootstrap-malformed", "does not start", "a truncated or emptied `bootstrap.checkpoint` in the metadata log dir", "move the file out: a node that has a metadata log starts without it"),
    StartReason("quorum-state-malformed", "does not start", "a truncated or edited file", "move the file out: a node starts without it"),
    # log dirs
    StartReason("foreign-directory", "does not start", "`lost+found`, a backup, a copy under another name", _OUT),
    StartReason("duplicate-partition", "does not start", "a move between log dirs that a crash interrupted; a restored copy", "move the shorter one out of every log dir"),
    StartReason("future-beside-current", "does not start; if the metadata log has the partition in another log dir, starts and ignores the copy; before KRaft the log dir goes offline", "a copy into the log dir that already has the partition", "move the `-future` directory out of every log dir"),
    StartReason("checkpoint-malformed", "the log dir goes offline", "a truncated or edited file", "`klog recover LOG_DIR`"),
    StartReason("checkpoint-number", "ignores the file and continues; before KRaft the log dir goes offline", "an edited file", "`klog recover LOG_DIR`"),
    StartReason(WATERMARK_NUMBER, "starts, but becomes leader or follower of hardly any partition, because an exception ends that step", "an entry of `replication-offset-checkpoint` is not a number: an edited file, a flipped bit", "`klog recover LOG_DIR`"),
    StartReason("metadata-dir-offline", "does not start, or stops seconds later", "another fault takes the log dir with the metadata log offline", "see the reason for that log dir"),
    StartReason("log-dirs-offline", "does not start, or stops seconds later", "other faults take every log dir offline", "see the reasons for the log dirs"),
    # partitions
    StartReason("topic-id-missing", "sets the directory aside as -stray", "`partition.metadata` is missing: a file system check removed it, or only the segments were copied", "write the file with the topic id that `next` names"),
    StartReason("topic-id-differs", "sets the directory aside as -stray", "the topic was deleted and created again, or the directory is another cluster's", _OUT),
    StartReason("topic-id-of-another", "loads it, and does not lead it: InconsistentTopicIdException ends that step, so that it may not lead others either (3.9 did not)", "a `partition.metadata` that was copied from another topic, or a directory that was renamed or copied to another topic's name", "write the file with the id of the directory's topic, or move the directory out of every log dir"),
    StartReason("topic-unknown", "sets the directory aside as -stray", "the topic was deleted, or is another cluster's", _OUT),
    StartReason("partition-unknown", "sets the directory aside as -stray", "the topic has fewer partitions", _OUT),
    StartReason("not-assigned", "sets the directory aside as -stray", "the partition was reassigned to other brokers while this one was away", _OUT),
    StartReason("metadata-malformed", "does not start, or the log dir goes offline; before KRaft does not start", "a truncated or edited `partition.metadata`", "write the file with the topic id that `next` names"),
    StartReason("epochs-malformed", "the log dir goes offline, or the broker does not start; before KRaft it does not start", "a truncated or edited `leader-epoch-checkpoint`", "`klog recover PARTITION`"),
    StartReason("foreign-log-name", "does not start", "a file with the suffix of a segment file, but without an offset as its name", "move the file out"),
    StartReason("log-start-beyond-end", "deletes all segments", "a restored checkpoint, a log that lost its end", "`klog recover PARTITION`"),
    StartReason("log-start-raised", "serves nothing below the log start, and deletes the segments there", "a flipped bit in `log-start-offset-checkpoint`, or the file of another time or disk: the leader epochs begin at an earlier offset", "the line that `next` names: lower its offset to the start of the leader epochs"),
    StartReason("torn-tail", "appends new batches behind it, where no client can read them; if the index points into it, takes an earlier offset as the log end and assigns offsets again", "a truncated file in a log dir with the clean-shutdown marker", "`klog recover PARTITION`"),
    StartReason("index-wrong", "uses the index as it is: a fetch from the entry's offset on begins behind records, so that consumers and followers skip them without an error; or a lookup by time finds a later offset", "a `.index` or `.timeindex` that is damaged or of another log, in a segment that the start does not recover", "`klog recover PARTITION`"),
    StartReason("txn-index-wrong", "uses the index as it is: read_committed consumers receive aborted records, or miss committed ones; without any `.snapshot` a start after a clean stop also forgets open transactions, and gives them no entry", "a `.txnindex` that is missing, truncated, damaged or older than its log, or that a follower wrote which appended two aborted transactions of a producer at once, in a segment that the start does not recover; removed `.snapshot` files", "`klog recover PARTITION`"),
    StartReason("index-not-compared", "uses the indexes as they are: an entry that leads behind records hides them from consumers and followers", "more than 1 GiB of logs in a log dir: the other indexes were not compared with the logs", "`klog doctor --records`, `klog verify`"),
    StartReason("txn-index-not-compared", "uses the transaction indexes as they are for read_committed consumers", "more than 1 GiB of logs in a log dir: the other indexes were not compared with the logs", "`klog doctor --records`, `klog verify`"),
    StartReason("transaction-hanging", "keeps the transaction open for ever: read_committed consumers stop at its first record, and the cleaner, too", "the directory of a partition of `__transaction_state` was lost or set aside, or a broker older than 4.0 has left a transaction behind", "`kafka-transactions abort` after the start; `klog transactions` lists them"),
    StartReason("recovery-cuts", "truncates the log at the first damage, and deletes the segments behind it", "a crash; damage in data that had not been flushed", "`klog recover PARTITION --salvage`, if records behind the damage are intact"),
    StartReason("log-refused", "does not start", "content of a log or an index that the broker cannot load", "`klog recover PARTITION`"),
    StartReason("unreadable", "the log dir goes offline", "permissions, a failing disk", "make it readable; klog reports what its own user may read"),
    StartReason("marked-delete", "deletes it after `log.segment.delete.delay.ms`, whatever it contains", "the topic was deleted, or the log was moved, and the broker stopped before it had finished", "move it out of every log dir; if it is the only copy, rename it to the partition's name"),
    StartReason("marked-stray", "keeps it, and never serves it", "an earlier start set it aside", "if it is the only copy, rename it to the partition's name; otherwise move it out"),
    StartReason("leader-offline", "3.9: loads it, but may not lead it, because an exception about the offline log dir ends that step; 4.x elects a leader again", "the broker was killed, and a log dir is offline since then", "bring the log dir online, or start the broker once more"),
    StartReason("copy-unfinished", "continues to copy from the current directory", "a move between log dirs that was interrupted", "nothing"),
    StartReason("copy-damaged", "copies the rest, replaces the partition with the copy, and deletes its directory: records that are intact only there are lost", "damage in the `-future` directory of an unfinished move between log dirs, in a segment that the start does not recover: flipped bits, a broken header; a missing segment; a log start above the partition's", "move the `-future` directory out of every log dir, and begin the move again"),
    StartReason("future-complete", "replaces the partition with the copy", "a move between log dirs that was interrupted at its end", "nothing"),
    StartReason("future-without-current", "creates an empty partition in the log dir that the metadata log names, and truncates the copy to it", "a move between log dirs, whose source was lost or removed", "rename the directory to the partition's name"),
    StartReason("no-directory", "creates an empty log, which a follower fills from its leader", "a new replica, or a directory that was removed", "restore the directory if no other replica has it"),
    # remote storage
    StartReason("remote-local-gone", "deletes the partition's segments in remote storage within one task interval (30 s), because its own log has none of their leader epochs", "the directory of a tiered partition was lost, emptied or restored without its `leader-epoch-checkpoint`, and no other replica can lead", "`klog remote attach`, before the first start"),
    StartReason("remote-metadata-lost", "moves the log start up to the first segment in its metadata, or to its local log; the objects stay, and no broker reads them again", "the directories of `__remote_log_metadata` were lost or emptied, or `rlmm.config.remote.log.metadata.topic.retention.ms` has deleted its records", "`klog remote attach`, before the first start: afterwards the log start has moved"),
    StartReason("tiering-off", "starts, reads the local logs of tiered topics alone, and moves their log starts there", "`remote.log.storage.system.enable=true` is missing from the broker's file", "write the line into the file"),
    StartReason("rlmm-damaged", "starts, and stops reading `__remote_log_metadata` at a record: it copies, finds and deletes no segment that is named behind it", "a damaged record, or one of another program", "`klog remote verify` names the record"),
    StartReason("remote-events-expire", "deletes the oldest records of `__remote_log_metadata` while their segments are in remote storage; knows these segments until its next start, which moves the log start up to the first segment that it still knows", "a limit, or compaction, in the settings of `__remote_log_metadata`; Kafka takes `rlmm.config.remote.log.metadata.topic.retention.ms` when it creates the topic", "the `kafka-configs` command that the note names"),
    StartReason("remote-objects-missing", "starts; consumers stop at the first offset of each such segment for ever, because the error is answered again and again", "objects were deleted from the bucket, or it is another one", "`klog remote verify` names the objects; restore them"),
    StartReason("stale-index-cache", "believes the copies of index files that it has in `remote-log-index-cache`, and reads the tier's no more", "an index in the tier, or its copy, was changed or damaged", "remove the directory: the broker copies the files again"),
    # retention
    StartReason("retention-early", "deletes segments by `retention.ms` although their records are younger, at its first retention pass, half a minute after the start", "a `.timeindex` that ends with zeros or with an older time, or is missing beside a log with an old modification time, in a segment that the start does not recover", "`klog recover PARTITION`"),
    StartReason("retention-due", "deletes the segments at its first retention pass, half a minute after the start", "the broker was down for a long time, or old records were written, adopted or copied", "the `kafka-configs` command that the note names, before the start or right after it"),
    StartReason("offsets-due", "removes committed offsets at the first check of its coordinators, 10 minutes after the start: their consumers then follow `auto.offset.reset`", "the broker was down for longer than `offsets.retention.minutes`, or an old `__consumer_offsets` was restored", "a larger `offsets.retention.minutes` in the broker's file, before the start"),
    StartReason("offsets-not-read", "removes those of the committed offsets that have expired; which they are was not read", "logs of `__consumer_offsets` of more than 1 GiB: a cleaner that died", "`klog doctor --records`, `klog groups`"),
)  # fmt: skip

REASONS: Final = {reason.id: reason for reason in _TABLE}
"""Every reason by its id, in the order of the table."""

RETENTION: Final = "retention-due"
"""The id of the notes about removal by retention."""
OFFSETS: Final = "offsets-due"
"""The id of the notes about committed offsets that have expired."""
OTHER_TOPIC: Final = "topic-id-of-another"
"""The reason of a partition that has the topic id of another topic of the cluster."""
RETENTION_EARLY: Final = "retention-early"
"""The reason of a partition whose young records retention removes."""
REFUSES: Final = "does not start"
GOES_OFFLINE: Final = "the log dir goes offline"
