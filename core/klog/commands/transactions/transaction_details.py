"""The transactions of some log dirs: state, times, parts, and which of them will never end.

for one in describe_transactions(["data"], TransactionQuery(now_ms)):
    print(one.transactional_id, one.state, one.began, one.ended)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from shlex import quote
from typing import Final, Literal, NamedTuple, TypeAlias

from klog.cluster.coordinator.coordinator_records import Note, ignore
from klog.cluster.coordinator.transactional_ids import IN_PROGRESS, PREPARED, TransactionImage, transaction_images
from klog.commands.transactions.transaction_joins import JoinedTransaction, joined_transactions
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, choose_with_internal
from klog.data_dir.selection import PartitionChoice, is_selected
from klog.formats.internal_topics import CLUSTER_METADATA, SHARE_GROUP_STATE, TRANSACTION_STATE
from klog.partition.start.replica_choice import select_replicas
from klog.partition.transactions.spans import TransactionSpan

TransactionState: TypeAlias = Literal["committed", "aborted", "open", "hanging"]
_WITHOUT: Final = (CLUSTER_METADATA, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""Topics that are never written in transactions."""


class TransactionPart(NamedTuple):
    """The part of a transaction in a partition.  Offsets are None without data, marker or log."""

    topic: str
    partition: int
    first_offset: int | None
    last_offset: int | None
    records: int
    marker_offset: int | None
    coordinator_epoch: int | None


class TransactionDetail(NamedTuple):
    """A transaction.  Times and *duration* are ms.  *transactional_id*: None if no coordinator's record contains it.

    *began*: the largest timestamp of its first batch; None without data.  *ended*: of its last marker; None for an open
    one.  *duration*: of an open one until now.  *coordinator*: its coordinator's last record about it.
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    state: TransactionState
    began: int | None
    ended: int | None
    duration: int | None
    records: int
    partitions: tuple[TransactionPart, ...]
    coordinator: TransactionImage | None

    @property
    def abort(self) -> str | None:
        """The command that ends a hanging transaction, else None.  Kafka: TransactionsCommand."""
        if self.state != "hanging":
            return None
        part = self.partitions[0]
        where = f"--topic {quote(part.topic)} --partition {part.partition} --start-offset {part.first_offset}"
        return f"kafka-transactions --bootstrap-server HOST:PORT abort {where}"


class TransactionQuery(NamedTuple):
    """The selected transactions: all, or those of some *states*, transactional *ids* (names or globs), *producer_ids*.

    *longer_than*: only those that lasted at least so many ms.  *topics*, *numbers*: only those in such a partition.
    """

    now_ms: int
    states: Sequence[str] = ()
    ids: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than: int | None = None
    choice: IdentityChoice = IdentityChoice()
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()

    def selects(self, one: TransactionDetail) -> bool:
        """Whether a transaction is meant."""
        name = one.transactional_id
        return (
            (not self.states or one.state in self.states)
            and (not self.ids or (name is not None and any(fnmatchcase(name, glob) for glob in self.ids)))
            and (not self.producer_ids or one.producer_id in self.producer_ids)
            and (self.longer_than is None or (one.duration or 0) >= self.longer_than)
            and ((not self.topics and not self.numbers) or any(map(self._is_selected, one.partitions)))
        )

    def _is_selected(self, part: TransactionPart) -> bool:
        return is_selected(part.topic, part.partition, self.topics, self.numbers)


def describe_transactions(
    paths: Iterable[str], query: TransactionQuery, note: Note = ignore, without: Container[str] = ()
) -> Iterator[TransactionDetail]:
    """Yield the transactions in *paths* that *query* selects, about in the order of their ends, the open ones last.

    *without*: the paths of partitions whose logs are known to have none, and are not read.  *note* receives a sentence
    about each unreadable part.  Raises UsageError, UnreadableError, IdentityError.
    """
    partitions = select_replicas(paths, (), (), "leader-epoch", query.choice, note, choose_with_internal)
    logs = [one for one in partitions if one.topic not in _WITHOUT and one.path not in without and one.segments]
    # They are listed after the logs: even those of a running broker then include each transaction in these.
    coordinators = [Partition(one.path) for one in partitions if one.topic == TRANSACTION_STATE]
    known = _Coordinators(transaction_images(coordinators, note=note), query.now_ms)
    numbers = {one.number for one in coordinators if one.number is not None}
    known.is_whole = bool(numbers) and len(numbers) == max(numbers) + 1
    if not known.is_whole:
        what = f"not all partitions of {TRANSACTION_STATE}" if numbers else f"no {TRANSACTION_STATE}"
        note(f"{what} among the paths: for open transactions of the missing ones it is unknown whether they hang")
    ended_of = known.being_ended if query.states and {*query.states} <= {"open", "hanging"} else None
    if ended_of is not None and not ended_of:
        coordinators = []  # the query excludes their history
    for joined in joined_transactions(logs, coordinators, note, ended_of):
        yield from filter(query.selects, known.details(joined))
    yield from filter(query.selects, known.without_data())


class _Coordinators:
    """The latest state of each transactional id.  *is_whole*: an id that is not among them does not exist."""

    def __init__(self, images: Iterable[TransactionImage], now_ms: int) -> None:
        self.is_whole = False
        self._now_ms = now_ms
        self._by_producer: dict[int, TransactionImage] = {}
        for image in images:
            before = self._by_producer.get(image.producer_id)
            if before is None or before.updated <= image.updated:
                self._by_producer[image.producer_id] = image
        self._in_progress = {one.producer_id: one for one in self._by_producer.values() if one.status in IN_PROGRESS}

    @property
    def being_ended(self) -> frozenset[int]:
        """The producers of whose transaction some partitions may have markers already, others not."""
        return frozenset(number for number, one in self._in_progress.items() if one.status in PREPARED)

    def details(self, joined: JoinedTransaction) -> Iterator[TransactionDetail]:
        """Yield a transaction; the parts of a hanging one are separate, because each partition is ended separately."""
        ended = [one for one in joined.spans if one.marker is not None]
        still = [one for one in joined.spans if one.marker is None]
        latest = self._in_progress.get(joined.producer_id)
        told = [one for one in still if latest and (one.topic, one.partition) in latest.partitions]
        rest = [one for one in still if one not in told]
        if told or (latest is not None and _ends(joined, latest)):
            self._in_progress.pop(joined.producer_id, None)
        if told:
            yield self._detail(joined, [*ended, *told], "open", latest)
        elif ended or (joined.prepared is not None and not joined.prepared.partitions):
            image = joined.image
            commits = image.commits if image is not None else bool(ended[0].marker and ended[0].marker.commits)
            yield self._detail(joined, ended, "committed" if commits else "aborted", image)
        if rest and not self.is_whole and joined.producer_id not in self._by_producer:
            yield self._detail(joined, rest, "open", None)
            return
        for one in rest:
            yield self._detail(joined, [one], "hanging", None)

    def without_data(self) -> Iterator[TransactionDetail]:
        """Yield the transactions that coordinators have open, and whose data is not among the paths."""
        for image in sorted(self._in_progress.values(), key=lambda one: one.started):
            parts = tuple(TransactionPart(*where, None, None, 0, None, None) for where in sorted(image.partitions))
            facts = image.transactional_id, image.producer_id, image.producer_epoch
            lasts = max(self._now_ms - image.started, 0) if image.started >= 0 else None
            yield TransactionDetail(*facts, "open", None, None, lasts, 0, parts, image)

    def _detail(
        self,
        joined: JoinedTransaction,
        spans: Sequence[TransactionSpan],
        state: TransactionState,
        image: TransactionImage | None,
    ) -> TransactionDetail:
        began = min((one.began for one in spans if one.first_offset >= 0), default=None)
        is_open = state in ("open", "hanging")
        ended = None if is_open else max((one.marker.timestamp for one in spans if one.marker), default=None)
        until = max(self._now_ms, began or 0) if is_open else ended
        owner = image or joined.image or self._by_producer.get(joined.producer_id)
        epochs = [one.producer_epoch for one in spans if one.first_offset >= 0]
        epochs += [one.marker.producer_epoch for one in spans if one.marker]
        return TransactionDetail(
            None if owner is None else owner.transactional_id,
            joined.producer_id,
            epochs[0] if epochs else -1 if image is None else image.producer_epoch,
            state,
            began,
            ended,
            None if began is None or until is None else until - began,
            sum(one.records for one in spans),
            tuple(sorted(map(_part, spans))),
            image,
        )


def _ends(joined: JoinedTransaction, latest: TransactionImage) -> bool:
    """Whether this transaction is the open one in its coordinator's records: a broker has continued since.

    Without these records, whether a marker is later than its beginning: everything before it had ended.
    """
    if joined.image is not None:
        return joined.image.started == latest.started
    return joined.last_marked > latest.started >= 0


def _part(span: TransactionSpan) -> TransactionPart:
    has_data = span.first_offset >= 0
    return TransactionPart(
        span.topic,
        span.partition,
        span.first_offset if has_data else None,
        span.last_offset if has_data else None,
        span.records,
        None if span.marker is None else span.marker.offset,
        None if span.marker is None else span.marker.coordinator_epoch,
    )
