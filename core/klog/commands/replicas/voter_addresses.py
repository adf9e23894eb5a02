"""The voters of a dynamic quorum: how a command line names their addresses, and the record that moves them.

Kafka: VoterSet, VotersRecord; for addresses QuorumConfig.parseVoterConnections, Endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.cluster.metadata.cluster_image import ListenerEndpoint, Voter
from klog.formats.structs.schema import Data

KRAFT_VOTERS: Final = 6
"""The type of the control record."""

_ADDRESS: Final = re.compile(r"(?:\[([0-9a-zA-Z%._:-]+)\]|([^\[\]:]*)):([^:]*)", re.DOTALL)
_HOST: Final = re.compile(r"[0-9a-zA-Z%._:-]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_HIGHEST_PORT: Final = 65535


class VoterAddress(NamedTuple):
    """The address of a controller; an IPv6 address is without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(option: str, text: str) -> VoterAddress:
    """Return the address that `HOST:PORT` or `[IPV6]:PORT` names.  Raises UsageError, which begins with *option*."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        ipv6 = "; an IPv6 address is in brackets, [::1]:9093" if text.count(":") > 1 else ""
        raise UsageError(f"{option} {text}: expected HOST:PORT{ipv6}")
    host, port = found[1] or found[2], found[3]
    if not host:
        raise UsageError(f"{option} {text}: the host is missing")
    if not _HOST.fullmatch(host):
        raise UsageError(f"{option} {text}: {host} is not a host's name: it has letters, digits and - . _ % only")
    if not _PORT.fullmatch(port) or not 0 < int(port) <= _HIGHEST_PORT:
        raise UsageError(f"{option} {text}: {port or 'nothing'} is not a port from 1 to {_HIGHEST_PORT}")
    return VoterAddress(host, int(port))


def parse_voters(text: str) -> dict[int, VoterAddress]:
    """Return the addresses by node that `ID@HOST:PORT,…` names.  Raises UsageError."""
    found: dict[int, VoterAddress] = {}
    for part in text.split(","):
        node, at, address = part.partition("@")
        if not at or not re.fullmatch(r"[0-9]{1,10}", node) or int(node) > 2**31 - 1:
            raise UsageError(f"--voters {part}: expected ID@HOST:PORT, 1@controller-1:9093")
        if int(node) in found:
            raise UsageError(f"--voters {part}: node {node} is named twice")
        found[int(node)] = parse_address("--voters", address)
    return found


def check_named(voters: Sequence[Voter], addresses: Mapping[int, VoterAddress], without: Collection[int] = ()) -> None:
    """Raise UsageError unless *addresses* name each of *voters* and no other, and *without* only such ones.

    KlogError for a set of voters that Kafka would not take.
    """
    known = {voter.id for voter in voters}
    ids = ", ".join(map(str, sorted(known)))
    if len(known) < len(voters):
        raise KlogError(f"the newest set of voters names a node twice: {', '.join(str(voter.id) for voter in voters)}")
    for node in without:
        if node not in known:
            raise UsageError(f"--without {node}: node {node} is not a voter; the voters of the newest set are {ids}")
    for node in addresses:
        if node not in known:
            raise UsageError(f"--voters: node {node} is not a voter; the voters of the newest set are {ids}")
    for node in sorted(known - {*addresses}):
        raise UsageError(f"--voters: the address of voter {node} is missing; the voters of the newest set are {ids}")


def moved(voter: Voter, address: VoterAddress | None, directory_id: str | None = None) -> Voter:
    """Return *voter* at *address*, under the name of its first listener, and with another *directory_id* if given."""
    endpoints = voter.endpoints
    if address is not None:
        name = endpoints[0].name if endpoints else "CONTROLLER"
        endpoints = (ListenerEndpoint(name, address.host, address.port), *endpoints[1:])
    return voter._replace(endpoints=endpoints, directory_id=directory_id or voter.directory_id)


def voters_data(voters: Sequence[Voter]) -> Data:
    """Return a VotersRecord."""
    return {
        "version": 0,
        "voters": [
            {
                "voterId": voter.id,
                "voterDirectoryId": voter.directory_id,
                "endpoints": [{"name": one.name, "host": one.host, "port": one.port} for one in voter.endpoints],
                "kRaftVersionFeature": {
                    "minSupportedVersion": voter.kraft_versions[0],
                    "maxSupportedVersion": voter.kraft_versions[1],
                },
            }
            for voter in sorted(voters)
        ],
    }
