"""Brokers, controllers and the quorum as the metadata log has them.

Kafka: ClusterDelta, BrokerRegistration, ControllerRegistration; for the quorum VoterSet and the records of raft.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cluster.placement.assignment_checks import UsableBroker
from klog.formats.structs.schema import Data


class ListenerEndpoint(NamedTuple):
    """The address of a node: *name* is the listener's."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def _endpoints(found: list[Data]) -> tuple[ListenerEndpoint, ...]:
    return tuple(ListenerEndpoint(one["name"], one["host"], one["port"]) for one in found)


class BrokerRegistration(NamedTuple):
    """A broker's last registration.

    *epoch*: the offset of its RegisterBroker record, a new one at each start.  *incarnation_id*: of that process.
    *log_dirs*: ids of its directories, empty before 3.7; *cordoned_log_dirs*: those that get no new partitions.
    *unregistered*: it was unregistered since; a snapshot that is taken after that no longer contains it.
    """

    epoch: int
    incarnation_id: str
    fenced: bool
    log_dirs: tuple[str, ...] = ()
    unregistered: bool = False
    rack: str | None = None
    endpoints: tuple[ListenerEndpoint, ...] = ()
    shutting_down: bool = False
    cordoned_log_dirs: tuple[str, ...] = ()

    @property
    def registered(self) -> bool:
        """Whether it has not been unregistered since."""
        return not self.unregistered

    def as_json(self) -> dict[str, object]:
        """Return it as fields for JSON."""
        return {
            "epoch": self.epoch,
            "incarnation": self.incarnation_id,
            "rack": self.rack,
            "fenced": self.fenced,
            "shutting_down": self.shutting_down,
            "endpoints": list(map(str, self.endpoints)),
            "log_dirs": list(self.log_dirs),
            "cordoned_log_dirs": list(self.cordoned_log_dirs),
        }


class ControllerRegistration(NamedTuple):
    """A controller's last registration, from 3.7 on."""

    incarnation_id: str
    endpoints: tuple[ListenerEndpoint, ...] = ()


class Voter(NamedTuple):
    """A member of a dynamic quorum; *kraft_versions*: the lowest and the highest that it supports."""

    id: int
    directory_id: str
    endpoints: tuple[ListenerEndpoint, ...]
    kraft_versions: tuple[int, int]

    def as_json(self) -> dict[str, object]:
        """Return it as fields for JSON."""
        return {**self._asdict(), "endpoints": list(map(str, self.endpoints))}


@dataclass
class QuorumImage:
    """The quorum according to the control records.

    *voters*: None in a quorum whose voters come from the configuration (kraft.version 0).  *leader*, *epoch*: those of
    the newest LeaderChange record; None without one.
    """

    kraft_version: int = 0
    voters: tuple[Voter, ...] | None = None
    leader: int | None = None
    epoch: int | None = None

    def apply(self, name: str, data: Data, epoch: int) -> None:
        """Take in the control record *name* of a batch of leader epoch *epoch*."""
        if name == "LEADER_CHANGE":
            self.leader, self.epoch = data["leaderId"], epoch
        elif name == "KRAFT_VERSION":
            self.kraft_version = data["kRaftVersion"]
        elif name == "KRAFT_VOTERS":
            self.voters = tuple(map(_voter, data["voters"]))


def _voter(data: Data) -> Voter:
    versions = data["kRaftVersionFeature"]
    return Voter(
        data["voterId"],
        data["voterDirectoryId"],
        _endpoints(data["endpoints"]),
        (versions["minSupportedVersion"], versions["maxSupportedVersion"]),
    )


@dataclass
class ClusterImage:
    """The brokers and controllers, by their ids."""

    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    controllers: dict[int, ControllerRegistration] = field(default_factory=dict)

    def register_broker(self, data: Data) -> None:
        """Replace whatever was known of the broker."""
        self.brokers[data["brokerId"]] = BrokerRegistration(
            data["brokerEpoch"],
            data["incarnationId"],
            data["fenced"],
            tuple(data["logDirs"]),
            rack=data["rack"],
            endpoints=_endpoints(data["endPoints"]),
            shutting_down=data["inControlledShutdown"],
            cordoned_log_dirs=tuple(data["cordonedLogDirs"] or ()),
        )

    def unregister_broker(self, data: Data) -> str | None:
        """Mark the broker as unregistered."""
        before = self.brokers.get(data["brokerId"])
        if before is None:
            return f"there is no broker {data['brokerId']}"
        self.brokers[data["brokerId"]] = before._replace(unregistered=True)
        return None

    def fence(self, data: Data, fenced: bool) -> str | None:
        """Fence or unfence a broker, as the records of Kafka before 3.2 do."""
        return self._change(data["id"], data["epoch"], fenced=fenced)

    def change_registration(self, data: Data) -> str | None:
        """Kafka: BrokerRegistration.cloneWith; fields that are 0, empty or null change nothing."""
        changes: dict[str, object] = {}
        if data["fenced"] in (1, -1):
            changes["fenced"] = data["fenced"] == 1
        if data["inControlledShutdown"] == 1:
            changes["shutting_down"] = True
        if data["logDirs"]:
            changes["log_dirs"] = tuple(data["logDirs"])
        if data["cordonedLogDirs"] is not None:
            changes["cordoned_log_dirs"] = tuple(data["cordonedLogDirs"])
        return self._change(data["brokerId"], data["brokerEpoch"], **changes)

    def _change(self, node_id: int, epoch: int, **changes: object) -> str | None:
        """Kafka: ClusterDelta.getBrokerOrThrow."""
        before = self.brokers.get(node_id)
        if before is None or before.unregistered:
            return f"there is no broker {node_id}"
        if before.epoch != epoch:
            return f"broker {node_id} has epoch {before.epoch}, not {epoch}"
        self.brokers[node_id] = before._replace(**changes)  # type: ignore[arg-type]  # names and types as above
        return None

    def register_controller(self, data: Data) -> None:
        """Replace whatever was known of the controller."""
        endpoints = _endpoints(data["endPoints"])
        self.controllers[data["controllerId"]] = ControllerRegistration(data["incarnationId"], endpoints)

    def usable_brokers(self) -> list[UsableBroker]:
        """Return the brokers, by id, that get new replicas: not those that shut down, nor with no log dir for them.

        Kafka: ClusterControlManager.usableBrokers, BrokerRegistration.hasUncordonedDirs.
        """
        return [
            UsableBroker(node, broker.rack, broker.fenced)
            for node, broker in sorted(self.brokers.items())
            if not broker.unregistered and not broker.shutting_down
            if not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned_log_dirs)
        ]
