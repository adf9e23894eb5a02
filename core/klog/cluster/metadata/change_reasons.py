"""The reason why a partition, a broker or the quorum changed, as far as the neighbouring records show it.

A controller writes the consequences of one event into one batch: if a broker is fenced, the changes of its partitions
precede the record of the fence.  A change that no other record explains was requested by a leader (AlterPartition) or a
tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.cluster.metadata.cluster_image import BrokerRegistration, Voter
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.formats.structs.schema import Data

_FENCED: Final = "was fenced"
_UNFENCED: Final = "was unfenced"
_SHUTS_DOWN: Final = "shuts down"
_REGISTERED: Final = "registered"
_UNREGISTERED: Final = "was unregistered"


class BatchEvents(NamedTuple):
    """A batch's records about brokers: *events* by node, and all registrations behind it."""

    events: dict[int, str]
    brokers: Mapping[int, BrokerRegistration]

    def add(self, record: str, data: Data) -> None:
        """Take a record of the batch."""
        event = _event(record, data)
        if event is not None:
            self.events[data["id"] if "id" in data else data["brokerId"]] = event

    def describe(self, nodes: Sequence[int], *kinds: str) -> str:
        """Return a sentence about those of *nodes* that had an event of *kinds*, "" for none."""
        found = {node: self.events[node] for node in nodes if self.events.get(node) in kinds}
        return ", ".join(f"broker {node} {event}" for node, event in found.items())


def _event(record: str, data: Data) -> str | None:
    if record == "BROKER_REGISTRATION_CHANGE_RECORD":
        if data["inControlledShutdown"] == 1:
            return _SHUTS_DOWN
        return {1: _FENCED, -1: _UNFENCED}.get(data["fenced"])
    return {
        "REGISTER_BROKER_RECORD": _REGISTERED,
        "UNREGISTER_BROKER_RECORD": _UNREGISTERED,
        "FENCE_BROKER_RECORD": _FENCED,
        "UNFENCE_BROKER_RECORD": _UNFENCED,
    }.get(record)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))


def _without(these: Sequence[int], those: Sequence[int]) -> list[int]:
    return [node for node in these if node not in those]


# ---------------------------------------------------------------- partitions


def partition_reason(
    before: PartitionRegistration | None, after: PartitionRegistration | None, record: str, batch: BatchEvents
) -> str | None:
    """Return why a partition changed; None when no record shows it."""
    if after is None:
        return "the topic was deleted"
    if before is None:
        return "created" if record == "PARTITION_RECORD" else None
    if record == "CLEAR_ELR_RECORD":
        return "the ELR was cleared"
    parts = dict.fromkeys(
        [*_reassignment(before, after), *_brokers(before, after, batch), *_election(before, after, batch)]
    )
    if not parts and before._replace(directories=after.directories, partition_epoch=after.partition_epoch) == after:
        return "assigned to other log dirs"
    return "; ".join(parts) or None


def _reassignment(before: PartitionRegistration, after: PartitionRegistration) -> Iterator[str]:
    moving, was_moving = (bool(one.adding or one.removing) for one in (after, before))
    if moving and not was_moving:
        moves = [*(f"+{node}" for node in after.adding), *(f"-{node}" for node in after.removing)]
        yield f"a reassignment begins: {' '.join(moves)}"
    elif was_moving and not moving:
        is_cancelled = set(after.replicas) == set(_without(before.replicas, before.adding)) and bool(before.adding)
        yield "the reassignment was cancelled" if is_cancelled else "the reassignment is complete"
    elif before.replicas != after.replicas:
        yield "the replicas were reassigned"


def _brokers(before: PartitionRegistration, after: PartitionRegistration, batch: BatchEvents) -> Iterator[str]:
    """Yield why brokers left or joined the ISR and the ELR."""
    left = _without(before.isr, after.isr)
    dropped = _without(before.elr, (*after.elr, *after.isr))
    gone = batch.describe(
        [*left, *dropped, *_without([before.leader], [after.leader])], _FENCED, _SHUTS_DOWN, _UNREGISTERED
    )
    if gone:
        yield gone
    anew = batch.describe([*left, *dropped], _REGISTERED)
    if anew:
        yield f"{anew} without having stopped cleanly"
    # After an election the ISR begins with the leader; no replica needs to have fallen behind.
    behind = [node for node in left if node not in batch.events]
    if behind and before.leader == after.leader and after.leader >= 0:
        yield f"{_listed(behind)} fell behind"
    if before.leader == after.leader and (joined := _without(after.isr, before.isr)):
        since = [f"{node} (registered at {batch.brokers[node].epoch})" for node in joined if node in batch.brokers]
        yield f"{', '.join(since) or _listed(joined)} caught up"


def _election(before: PartitionRegistration, after: PartitionRegistration, batch: BatchEvents) -> Iterator[str]:
    """Yield the reasons for the election of the leader."""
    if before.recovering and not after.recovering:
        yield "the leader has recovered"
    if before.leader == after.leader:
        return
    if after.leader < 0:
        yield "no leader is left"
        return
    back = batch.describe([after.leader], _UNFENCED)
    if back:
        yield back
    if after.recovering or after.leader not in (*before.isr, *before.elr, *before.last_known_elr):
        yield f"unclean election of {after.leader}"
    elif after.leader not in (*before.isr, *before.elr):
        yield f"election of {after.leader}, the last known leader"
    elif before.leader in after.isr and after.leader == after.replicas[0]:
        yield f"election of {after.leader}, the preferred leader"
    else:
        yield f"election of {after.leader}"


# ---------------------------------------------------------------- brokers and the quorum


def broker_reason(before: BrokerRegistration | None, after: BrokerRegistration | None, record: str) -> str | None:
    """Return why a broker's registration changed; None when no record shows it."""
    if after is None:
        return _UNREGISTERED
    if record == "REGISTER_BROKER_RECORD":
        if before is None:
            return "registered"
        started = before.incarnation_id != after.incarnation_id
        return "registered after a start" if started else "the same process registered again"
    if before is None:
        return None
    if before.fenced != after.fenced:
        return _FENCED if after.fenced else _UNFENCED
    if after.shutting_down and not before.shutting_down:
        return _SHUTS_DOWN
    return "reports its log dirs"


def quorum_reason(before: Sequence[Voter], after: Sequence[Voter], data: Data) -> str | None:
    """Return who granted an election, or which voters are not as before."""
    if "grantingVoters" in data:
        return f"votes of {_listed([one['voterId'] for one in data['grantingVoters']])}"
    ids = [{voter.id: voter for voter in voters} for voters in (before, after)]
    added, removed = (_without(list(one), list(other)) for one, other in ((ids[1], ids[0]), (ids[0], ids[1])))
    moved = [node for node in ids[1] if node in ids[0] and ids[0][node] != ids[1][node]]
    kinds = (("added", added), ("removed", removed), ("changed", moved))
    parts = [f"{what} {_listed(nodes)}" for what, nodes in kinds if nodes]
    return "voters " + ", ".join(parts) if parts else None
