"""`meta.properties`, `quorum-state`, `.kafka_cleanshutdown`: the owner of a log dir, and how it was shut down.

    meta.properties                          quorum-state, one line of JSON
    #                                            {"leaderId":1,"leaderEpoch":3,"votedId":-1,…,"data_version":0}
    #Sat Nov 21 05:10:19 UTC 2026
    node.id=1                                .kafka_cleanshutdown, JSON from 3.7 on, before that empty
    directory.id=tpx8pd1IQDqJwMfGzXj6GA          {"version":0,"brokerEpoch":568}
    version=1
    cluster.id=fXeC61JOQie3q2pvw8VSPQ

The first is in the form of Java's properties: ISO-8859-1, `#` and `!` comments, `=`, `:` or a blank after the key,
`\\uXXXX`, and a backslash at a line's end to go on with the next.  Content that a broker would refuse is a `Malformed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.formats.checkpoint import Malformed, decode, shorten
from klog.formats.java_integers import INT_MAX, LONG_MAX
from klog.formats.java_text import ZERO_UUID, lines, parse_int, parse_uuid

_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_BLANKS: Final = " \t\f"


def read_properties(content: bytes) -> dict[str, str] | Malformed:
    """Return the keys and values of a properties file; the last of several lines counts.  Java: Properties.load."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(content.decode("iso-8859-1")):
        key_end, value_start = _split(line)
        key, value = _unescape(line[:key_end]), _unescape(line[value_start:])
        if key is None or value is None:
            return Malformed(number, f"{shorten(line)} has a \\u without four hexadecimal digits")
        found[key] = value
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each property with the number of its first line.

    Comments, blank lines and leading blanks are skipped; a line that ends in an odd number of backslashes continues.
    """
    joined, first, goes_on = "", 0, False
    for number, line in enumerate(lines(text), start=1):
        line = line.lstrip(_BLANKS)
        if not joined and (line[:1] in ("#", "!") or not (line or goes_on)):
            first, goes_on = 0, False
            continue
        first = first or number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if goes_on else line
        if joined and not goes_on:
            yield first, joined
            joined, first = "", 0
    if joined:
        yield first, joined


def _split(line: str) -> tuple[int, int]:
    """Return the end of a property's key and the start of its value."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    key_end = min(at, len(line))
    start = key_end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return key_end, start


def _unescape(text: str) -> str | None:
    """Return *text* with its escapes resolved, None for a broken `\\u`."""
    head, *pieces = text.split("\\")
    made = [head]
    escaped = True
    for piece in pieces:
        if not escaped:  # the second of two backslashes
            made.append(piece)
            escaped = True
        elif not piece:
            made.append("\\")
            escaped = False
        elif piece[0] == "u":
            digits = piece[1:5]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                return None
            made += [chr(int(digits, 16)), piece[5:]]
        else:
            made += [_ESCAPES.get(piece[0], piece[0]), piece[1:]]
    joined = "".join(made)
    # Java spells letters beyond the basic plane with two escapes.
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if "\\u" in text else joined


class MetaProperties(NamedTuple):
    """The content of `meta.properties`.

    *version* 0 is ZooKeeper's form (`broker.id`), 1 is KRaft's (`node.id`).  None: not given, which version 0 allows.
    *properties* holds all of the file's keys.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    properties: dict[str, str]


def read_meta_properties(content: bytes) -> MetaProperties | Malformed:
    """Read `meta.properties`; a `Malformed` of line 0 is about the file as a whole.  Kafka: MetaProperties.Builder."""
    found = read_properties(content)
    if isinstance(found, Malformed):
        return found
    version = parse_int(found.get("version", "0").strip("".join(map(chr, range(33)))))
    if version not in (0, 1):
        return Malformed(0, f"version={shorten(found['version'])}, expected 0 or 1")
    id_key = "broker.id" if version == 0 else "node.id"
    node_id = parse_int(found.get(id_key, ""))
    if node_id is None and (version == 1 or id_key in found):
        return Malformed(0, f"{id_key}={shorten(found[id_key])} is not a number" if id_key in found else f"no {id_key}")
    if version == 1 and "cluster.id" not in found:
        return Malformed(0, "no cluster.id")
    directory_id = parse_uuid(found["directory.id"]) if "directory.id" in found else None
    if directory_id is None and "directory.id" in found:
        return Malformed(0, f"directory.id={shorten(found['directory.id'])} is not an id")
    return MetaProperties(version, found.get("cluster.id"), node_id, directory_id, found)


class QuorumState(NamedTuple):
    """The content of `quorum-state`: the KRaft node's last vote and leader; None for none.

    *voters*: node ids, in version 0 only (later they are in the metadata log).
    """

    data_version: int
    leader_id: int | None
    leader_epoch: int
    voted_id: int | None
    voted_directory_id: str | None = None
    cluster_id: str | None = None
    applied_offset: int | None = None
    voters: tuple[int, ...] | None = None


def read_quorum_state(content: bytes) -> QuorumState | Malformed:
    """Read the first line of `quorum-state`.  Kafka: FileQuorumStateStore, QuorumStateDataJsonConverter."""
    text = decode(content)
    if isinstance(text, Malformed):
        return text
    found = _json_object(next(lines(text), ""))
    if found is None:
        return Malformed(1, "no JSON object")
    version = found.get("data_version")
    if version not in (0, 1):
        return Malformed(1, f"data_version {version}, expected 0 or 1")
    numbers = {name: _whole(found.get(name), INT_MAX) for name in ("leaderId", "leaderEpoch", "votedId")}
    missing = [name for name, value in numbers.items() if value is None]
    voted_directory = parse_uuid(str(found.get("votedDirectoryId", "" if version else ZERO_UUID)))
    if voted_directory is None:
        missing.append("votedDirectoryId")
    if version == 0:
        missing += [name for name in ("clusterId", "appliedOffset", "currentVoters") if name not in found]
    voters = _voters(found.get("currentVoters"))
    if voters is None:
        missing.append("currentVoters")
    if missing:
        return Malformed(1, f"{missing[0]} is missing or of the wrong kind")
    leader, voted = (None if numbers[name] == -1 else numbers[name] for name in ("leaderId", "votedId"))
    return QuorumState(
        data_version=1 if version else 0,
        leader_id=leader,
        leader_epoch=numbers["leaderEpoch"] or 0,
        voted_id=voted,
        voted_directory_id=None if voted_directory == ZERO_UUID else voted_directory,
        cluster_id=str(found.get("clusterId", "")) or None,
        applied_offset=_whole(found.get("appliedOffset"), LONG_MAX),
        voters=voters if version == 0 else None,
    )


def _voters(value: object) -> tuple[int, ...] | None:
    """Return the node ids of a list of voters, none for null; None when it is neither."""
    if value is None:
        return ()
    if not isinstance(value, list):
        return None
    voters = [_whole(voter.get("voterId"), INT_MAX) if isinstance(voter, dict) else None for voter in value]
    found = tuple(voter for voter in voters if voter is not None)
    return found if len(found) == len(voters) else None


class CleanShutdown(NamedTuple):
    """The content of the clean-shutdown marker, `.kafka_cleanshutdown`; its existence makes a shutdown clean.

    *broker_epoch*: None if it has none (before 3.7) or cannot be read.
    """

    broker_epoch: int | None


def read_clean_shutdown(content: bytes) -> CleanShutdown:
    """Read `.kafka_cleanshutdown`.  Kafka: CleanShutdownFileHandler.read, which shrugs at whatever it cannot read."""
    found = _json_object(content.decode("utf-8", "replace"))
    return CleanShutdown(_whole(found.get("brokerEpoch"), LONG_MAX) if found is not None else None)


def write_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the content of `.kafka_cleanshutdown` as 3.7 and later write it; -1 for an unknown epoch."""
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def _json_object(text: str) -> dict[str, object] | None:
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(value: object, largest: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -largest - 1 <= value <= largest else None


NO_NODE: Final = -1
"""The node id of a log dir that klog has made: no broker takes it for its own."""


def write_meta_properties(cluster_id: str | None, now_ms: int) -> bytes:
    """Return `meta.properties` for a log dir that belongs to no broker; *cluster_id*: None if that is unknown.

    Version 1 needs a cluster id, version 0 does not.  Kafka: MetaProperties, PropertiesUtils.
    """
    import time

    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
    if cluster_id is None:
        return f"#\n#{date}\nbroker.id={NO_NODE}\nversion=0\n".encode()
    return f"#\n#{date}\nnode.id={NO_NODE}\nversion=1\ncluster.id={cluster_id}\n".encode()
