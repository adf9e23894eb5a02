"""One classic consumer group: its members and the steps of a rebalance, in memory, without a clock.

    Empty ─ a member joins ─▶ PreparingRebalance ─ all have joined ─▶ CompletingRebalance ─ the leader syncs ─▶ Stable
      ▲                             ▲      │ all have left                                                       │
      └─────────────────────────────┼──────┘                                                                     │
                                    └──────── a member joins, leaves, times out or changes its protocols ─── ◀───┘

Times are seconds of a monotonic clock; every method takes the *now*.  Kafka: ClassicGroup, and the part of
GroupMetadataManager for it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from klog.formats.error_codes import ErrorCode

INITIAL_DELAY_S: Final = 0.1
"""The time that the first member waits for others.  A broker waits 3 s (group.initial.rebalance.delay.ms)."""
LONGEST_REBALANCE_S: Final = 1800.0
MEMBER_BYTES: Final = 4096


class GroupState(Enum):
    """The state of a group, under Kafka's name."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(eq=False)
class Member:
    """One member.  *protocols*: assignment strategies in its order, each with the metadata for the leader.

    *seen*: its last request; *joining* and *syncing*: a request of it waits for the group; *fenced*: another member
    joined under its instance id.
    """

    id: str
    instance: str | None
    client: str
    host: str
    protocols: dict[str, bytes]
    session_s: float
    rebalance_s: float
    seen: float
    joining: bool = False
    syncing: bool = False
    fenced: bool = False
    assignment: bytes = b""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return MEMBER_BYTES + len(self.assignment) + sum(len(name) + len(data) for name, data in self.protocols.items())

    def silent_at(self) -> float | None:
        """Return when it expires without another request; None while a request of it waits."""
        return None if self.joining or self.syncing else self.seen + self.session_s


@dataclass(eq=False)
class ConsumerGroup:
    """A group.  *pending*: member ids that were given out and not yet joined with, each with when it lapses."""

    id: str
    kind: str = ""
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    soonest: float = 0.0
    deadline: float = 0.0

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return MEMBER_BYTES * (1 + len(self.pending)) + sum(member.size for member in self.members.values())

    @property
    def abandoned(self) -> bool:
        """Whether it has no members, and none is joining."""
        return not self.members and not self.pending

    def supports(self, kind: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these strategies may join.  Kafka: ClassicGroup.supportsProtocols."""
        if not kind or not protocols:
            return False
        return not self.members or (kind == self.kind and bool(self._common() & set(protocols)))

    def _common(self) -> set[str]:
        return set.intersection(*(set(member.protocols) for member in self.members.values()))

    def static(self, instance: str | None) -> Member | None:
        """Return the member with this instance id."""
        if instance is None:
            return None
        return next((member for member in self.members.values() if member.instance == instance), None)

    def find(self, member_id: str, instance: str | None) -> Member | ErrorCode:
        """Return the member with this id, or why the request is refused.  Kafka: ClassicGroup.validateMember."""
        if instance is not None:
            known = self.static(instance)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return known if known.id == member_id else ErrorCode.FENCED_INSTANCE_ID
        return self.members.get(member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    # ------------------------------------------------------------ members join and leave

    def join(self, member: Member, kind: str, now: float) -> None:
        """Add *member*, new or known, to the rebalance that its request begins."""
        self.pending.pop(member.id, None)
        first = self.state is GroupState.EMPTY
        if not self.members:
            self.kind = kind
        self.members[member.id] = member
        member.joining, member.seen = True, now
        if self.state is not GroupState.PREPARING:
            self._prepare(now, INITIAL_DELAY_S if first else 0.0)
        self.tick(now)

    def replace(self, old: Member, new: Member, now: float) -> bool:
        """Put *new* in the place of *old*, which has its instance id; return whether that takes no rebalance.

        Kafka: GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin.
        """
        old.fenced, old.joining, old.syncing = True, False, False
        self.members = {new.id if key == old.id else key: member for key, member in self.members.items()}
        self.members[new.id] = new
        new.assignment = old.assignment
        was_leader = self.leader == old.id
        if was_leader:
            self.leader = new.id
        protocol = self.protocol or ""
        same = old.protocols.get(protocol) == new.protocols.get(protocol) and protocol in new.protocols
        if self.state is GroupState.STABLE and same:
            return True
        self.join(new, self.kind, now)
        return False

    def leave(self, member: Member, now: float) -> None:
        """Take *member* out."""
        del self.members[member.id]
        member.joining = member.syncing = False
        if self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        self.tick(now)

    # ------------------------------------------------------------ the rebalance

    def _prepare(self, now: float, delay_s: float = 0.0) -> None:
        self.state = GroupState.PREPARING
        for member in self.members.values():
            member.syncing, member.assignment = False, b""
        self.soonest = now + delay_s
        self.deadline = now + max((member.rebalance_s for member in self.members.values()), default=0.0)

    def tick(self, now: float) -> None:
        """Remove expired members, and complete the join phase if all have joined or its time is over."""
        for member_id in [key for key, lapses in self.pending.items() if lapses <= now]:
            del self.pending[member_id]
        silent = [one for one in self.members.values() if (at := one.silent_at()) is not None and at <= now]
        for member in silent:
            del self.members[member.id]
        if silent and self.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._prepare(now)
        if self.state is GroupState.PREPARING and now >= self.soonest and (self._all_joined() or now >= self.deadline):
            self._complete(now)

    def _all_joined(self) -> bool:
        return not self.pending and all(member.joining for member in self.members.values())

    def _complete(self, now: float) -> None:
        joined = [member for member in self.members.values() if member.joining]
        for member in [one for one in self.members.values() if not one.joining and one.instance is None]:
            del self.members[member.id]
        if self.members and not joined:  # only static members, which may return until their session expires
            self.deadline = now + max(member.rebalance_s for member in self.members.values())
            return
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return
        self.state, self.protocol = GroupState.COMPLETING, self._vote()
        if self.leader not in [member.id for member in joined]:
            self.leader = joined[0].id
        for member in self.members.values():
            member.joining, member.assignment = False, b""
        for member in joined:
            member.seen = now

    def _vote(self) -> str:
        """Return the strategy that most members prefer among those that all have."""
        common = self._common()
        votes = Counter(next(n for n in member.protocols if n in common) for member in self.members.values())
        return votes.most_common(1)[0][0] if common else ""

    def assign(self, assignments: dict[str, bytes], now: float) -> None:
        """Store the assignment that the leader computed."""
        for member in self.members.values():
            member.assignment, member.seen, member.syncing = assignments.get(member.id, b""), now, False
        self.state = GroupState.STABLE

    def next_change(self) -> float | None:
        """Return when `tick` must be called next; None: not before the next request."""
        times = [at for member in self.members.values() if (at := member.silent_at()) is not None]
        times += self.pending.values()
        if self.state is GroupState.PREPARING:
            times.append(self.soonest if self._all_joined() else self.deadline)
        return min(times, default=None)
