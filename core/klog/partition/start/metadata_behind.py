"""Whether a metadata log is behind the logs beside it: it would assign numbers again that the logs already contain.

A controller continues leader epochs and producer ids from its metadata log.  A metadata log that was rolled back
continues from too low a number.  A new producer is then assigned the id of an old one, and a broker treats its records
as duplicates: it acknowledges and does not append them.  A leader with an epoch that is not new makes a broker forget
the later ones.

Kafka: ProducerStateEntry.findDuplicateBatch, ProducerIdControlManager, LeaderEpochFileCache.assign.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from klog.base.errors import counted, range_text
from klog.cluster.coordinator.transactional_ids import COMPLETED, transaction_images
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import epoch_at, log_end
from klog.formats.checkpoint import epochs_in_force
from klog.formats.internal_topics import TRANSACTION_STATE
from klog.formats.java_text import parse_long
from klog.formats.names import PartitionState
from klog.formats.producer_snapshot import PRODUCER_ID_EXPIRATION_MS
from klog.formats.transaction_state import TransactionStatus
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.transactions.producer_replay import nearest_state, replay

FIRST_SHIFTED_ID: Final = 1 << 62
"""The first producer id that `klog write` assigns: no controller reaches it."""

_IDLE: Final = COMPLETED | {TransactionStatus.EMPTY, TransactionStatus.DEAD}
_TRANSACTIONAL_ID_EXPIRATION_MS: Final = 7 * 86_400_000
"""Kafka's default of `transactional.id.expiration.ms`."""


def producer_clock(
    now_ms: int, cluster: ClusterMetadata | None, node_id: int | None, expiration_ms: int | None = None
) -> BrokerClock:
    """Return the time at which a broker starts.  *expiration_ms*: None: as the metadata log has it, or Kafka's."""
    if expiration_ms is None and cluster is not None:
        expiration_ms = parse_long(cluster.broker_config(node_id).get("producer.id.expiration.ms", ""))
    return BrokerClock(now_ms, expiration_ms or PRODUCER_ID_EXPIRATION_MS)


class UsedNumbers(NamedTuple):
    """The numbers in a partition that a controller has assigned.

    *leader_epoch*: of the last batch, or the latest in the epoch checkpoint below the end of the log; -1 without one.
    *producer_ids*: those of the producers that a broker still has, ascending; in a coordinator's log also those of its
    transactional ids.  *open_transactions*: the first offset and the producer id of each, ascending.
    """

    leader_epoch: int = -1
    producer_ids: tuple[int, ...] = ()
    open_transactions: tuple[tuple[int, int], ...] = ()


def used_numbers(partition: Partition, log_end: int, clock: BrokerClock) -> UsedNumbers:
    """Return the numbers of a log that ends at *log_end* after the next start.  Raises UnreadableError."""
    epochs = partition.epochs
    entries = epochs_in_force(epochs.entries) if epochs is not None and epochs.malformed is None else []
    known = [entry.epoch for entry in entries if entry.start_offset < log_end]
    state = nearest_state(partition, log_end)
    if state.end < log_end:
        for _ in replay(state, partition.path, partition.segments, log_end):
            pass
    state.expire(clock.now_ms, clock.expiration_ms)
    ids, opened = set(state.producers), tuple(state.ongoing.all())
    if partition.topic == TRANSACTION_STATE:
        oldest = clock.now_ms - _TRANSACTIONAL_ID_EXPIRATION_MS
        images = transaction_images([partition])
        ids |= {image.producer_id for image in images if image.status not in _IDLE or image.updated > oldest}
    found = sorted(one for one in ids if 0 <= one < FIRST_SHIFTED_ID)
    return UsedNumbers(max([epoch_at(partition, log_end - 1), *known]), tuple(found), opened)


class UsedEpoch(NamedTuple):
    """A partition whose log has a later leader epoch, *used*, than the metadata log, *known*."""

    topic: str
    number: int
    used: int
    known: int


class MetadataLag(NamedTuple):
    """How far a metadata log is behind logs; empty if it is not.

    *producer_ids*: those in use that it would assign, from *next_producer_id* on.
    """

    epochs: tuple[UsedEpoch, ...]
    producer_ids: tuple[int, ...]
    next_producer_id: int

    def __bool__(self) -> bool:
        return bool(self.epochs or self.producer_ids)

    @property
    def description(self) -> str:
        """Return how far it is behind, and the consequences, as the end of a sentence."""
        found = []
        if self.epochs:
            topic, number, used, known = max(self.epochs, key=lambda one: one.used - one.known)
            have = "has a later leader epoch" if len(self.epochs) == 1 else "have later leader epochs"
            found.append(
                f"{counted(len(self.epochs), 'partition')} {have} than it ({topic}-{number}: {used}, it has {known}):"
                " a broker can forget these epochs, or use one of them twice"
            )
        if self.producer_ids:
            first, last = self.producer_ids[0], self.producer_ids[-1]
            which = range_text(first, last)
            found.append(
                f"{counted(len(self.producer_ids), 'producer id')} in use ({which}) it would hand out again, from"
                f" {self.next_producer_id} on: what new producers send can be acknowledged and not appended"
            )
        return "; ".join(found)


def next_producer_id(cluster: ClusterMetadata) -> int:
    """Return the first producer id that a controller has not handed out: 0 before the first."""
    return cluster.state.settings.next_producer_id or 0


def metadata_lag(cluster: ClusterMetadata, logs: Iterable[tuple[str, int, UsedNumbers]]) -> MetadataLag:
    """Compare a metadata log after its own recovery with *logs*: topic and number of each partition."""
    epochs: dict[tuple[str, int], UsedEpoch] = {}
    ids: set[int] = set()
    free = next_producer_id(cluster)
    for topic, number, used in logs:
        known = cluster.partition(topic, number)
        before = epochs.get((topic, number))
        if known is not None and used.leader_epoch > max(known.leader_epoch, before.used if before else -1):
            epochs[topic, number] = UsedEpoch(topic, number, used.leader_epoch, known.leader_epoch)
        ids.update(one for one in used.producer_ids if one >= free)
    return MetadataLag(tuple(epochs[key] for key in sorted(epochs)), tuple(sorted(ids)), free)


def reuse_note(cluster: ClusterMetadata, producer_ids: Collection[int], is_own: bool) -> str | None:
    """Return a note about the consequences if a partition keeps *producer_ids*; None if no other producer has them, or
    will receive them.

    *is_own*: the partition is of a topic that the metadata log has, or had.
    """
    free = next_producer_id(cluster)
    coming = [one for one in producer_ids if free <= one < FIRST_SHIFTED_ID]
    others = [] if is_own else [one for one in producer_ids if one < free]
    said = [f"{counted(len(coming), 'id')} will be handed out again (the next is {free})"] if coming else []
    said += [f"{counted(len(others), 'id')} may be those of other producers of this cluster"] if others else []
    if not said:
        return None
    return (
        f"of {counted(len(producer_ids), 'producer')} that are kept {' and '.join(said)}: a broker takes what the"
        " other producer of such an id sends for a repetition and drops it, or refuses it"
    )


def lag_behind(cluster: ClusterMetadata, partitions: Iterable[Partition], now_ms: int) -> MetadataLag:
    """Compare a metadata log with those of *partitions*, of any broker, that are its cluster's.

    Raises UnreadableError.
    """
    return metadata_lag(cluster, _logs(cluster, partitions, now_ms))


def _logs(
    cluster: ClusterMetadata, partitions: Iterable[Partition], now_ms: int
) -> Iterator[tuple[str, int, UsedNumbers]]:
    clock = producer_clock(now_ms, cluster, None)
    for one in partitions:
        topic_id = cluster.topic_ids.get(one.topic or "")
        if topic_id is None or one.topic_id not in (None, topic_id) or one.state is not PartitionState.CURRENT:
            continue
        if one.topic is not None and one.number is not None and (end := log_end(one)) >= 0:
            yield one.topic, one.number, used_numbers(one, end, clock)
