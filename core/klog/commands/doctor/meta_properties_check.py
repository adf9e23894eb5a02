"""The first step of a start: `meta.properties` of all log dirs together, before anything is locked or loaded.

It reads the broker's own file, `server.properties`, too.
Kafka: KafkaRaftServer.initializeLogDirs, MetaPropertiesEnsemble; before KRaft KafkaServer.startup,
BrokerMetadataCheckpoint.getBrokerMetadataAndOfflineDirs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.base.errors import KlogError, NotKafkaError, UsageError
from klog.commands.doctor.diagnosis import KafkaVersion
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.root_files import read_server_properties, read_small
from klog.data_dir.selection import open_path
from klog.formats.checkpoint import Malformed
from klog.formats.java_integers import LONG_MAX
from klog.formats.java_text import parse_int, parse_long, uuid_bytes
from klog.formats.names import CLUSTER_METADATA, FileKind, PartitionState
from klog.formats.properties import MetaProperties, read_meta_properties, read_properties
from klog.partition.start.start_reasons import StartFailure

DELETE_DELAY_MS: Final = 60_000
_LOST_AND_FOUND: Final = "lost+found"
"""A directory that a file system of its own has from the start."""


class BrokerConfig(NamedTuple):
    """The settings that decide about a start.  None: not given.  *delete_delay_ms*: `log.segment.delete.delay.ms`.

    *producer_expiration_ms*: `producer.id.expiration.ms`.  *properties*: the whole content of the file.
    """

    log_dirs: tuple[str, ...] = ()
    node_id: int | None = None
    metadata_log_dir: str | None = None
    delete_delay_ms: int = DELETE_DELAY_MS
    producer_expiration_ms: int | None = None
    properties: Mapping[str, str] = MappingProxyType({})


def read_config(path: str) -> BrokerConfig:
    """Read `server.properties`.  Raises UsageError for a file that is none, or a number that is none."""
    found = read_server_properties(path)
    dirs = found.get("log.dirs") or found.get("log.dir") or ""
    node = found.get("node.id", found.get("broker.id"))
    delay = found.get("log.segment.delete.delay.ms", found.get("file.delete.delay.ms"))
    node_id = None if node is None else parse_int(node.strip())
    delay_ms = DELETE_DELAY_MS if delay is None else parse_long(delay.strip())
    if node is not None and node_id is None:
        raise UsageError(f"{path}: node.id={node} is not a number")
    if delay_ms is None or not 0 <= delay_ms <= LONG_MAX:
        raise UsageError(f"{path}: the delay of deletions, {delay}, is not a number of milliseconds")
    log_dirs = tuple(one.strip() for one in dirs.split(",") if one.strip())
    expiration_ms = parse_long(found.get("producer.id.expiration.ms", "").strip())
    metadata_log_dir = (found.get("metadata.log.dir") or "").strip() or None
    return BrokerConfig(log_dirs, node_id, metadata_log_dir, delay_ms, expiration_ms, found)


def choose_log_dirs(given: Sequence[str], config: BrokerConfig | None, file: str | None) -> tuple[str, ...]:
    """Return the log dirs, from the command line or from *config*, the content of *file*.

    Raises UsageError if both name them and differ, or neither does.
    """
    configured = () if config is None else config.log_dirs
    if not given and not configured:
        raise UsageError("name the broker's log dirs, or its server.properties with --server-properties")
    if given and configured and list(map(os.path.realpath, given)) != list(map(os.path.realpath, configured)):
        raise UsageError(f"{file} has log.dirs={','.join(configured)}, and the command line {','.join(given)}")
    return tuple(given) or configured


_RESERVED_IDS: Final = 100
_NO_VERSION: Final = -1


class FormattedDir(NamedTuple):
    """A log dir at this step.  *meta*: None if there is no file.

    *problem*: the dir is no directory that opens, or there is no room in it.  *is_read_only*: its file system is, where
    klog runs.
    """

    log_dir: LogDir
    meta: MetaProperties | Malformed | None
    problem: str | None = None
    is_read_only: bool = False

    @property
    def path(self) -> str:
        """The path of the log dir, as it was given."""
        return self.log_dir.path

    @property
    def known(self) -> MetaProperties | None:
        """The content of the file if a broker accepts it."""
        return self.meta if isinstance(self.meta, MetaProperties) else None

    @property
    def is_there(self) -> bool:
        """Whether it is a directory that can be listed."""
        return self.problem is None and os.path.isdir(self.path)

    @property
    def is_offline(self) -> bool:
        """Whether the broker continues without it, if it can."""
        return self.problem is not None or isinstance(self.meta, Malformed)

    @property
    def reason(self) -> str | None:
        """The id of its own fault."""
        if self.problem is not None:
            return "log-dir-unusable"
        return None if self.known else "meta-properties-missing" if self.meta is None else "meta-properties-malformed"


def not_log_dir(path: str) -> str | None:
    """Return the fault of *path*, and the name to report, if it cannot be meant as a log dir.

    An empty directory is a disk that is not formatted yet.  Raises NotKafkaError for one of another program.
    """
    if os.path.isfile(path):
        return f"{path}: a file; expected a log dir"
    try:
        if isinstance(open_path(path), Partition):
            return f"{path}: a partition directory; name its log dir: {os.path.dirname(os.path.abspath(path))}"
    except NotKafkaError:
        with suppress(OSError), os.scandir(path) as entries:
            found = [one.path for one in entries if one.name != _LOST_AND_FOUND]
            inner = sorted(one for one in found if os.path.isfile(os.path.join(one, FileKind.META_PROPERTIES.value)))
            if inner:
                return f"{path}: not a log dir, but it contains some; name them: {' '.join(inner)}"
            if found:
                raise
    except KlogError:
        return None
    return None


def read_format(path: str, is_kraft: bool) -> FormattedDir:
    """Return the first facts that a broker reads in a log dir."""
    log_dir = LogDir(path)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return FormattedDir(log_dir, None)
    except OSError as error:
        return FormattedDir(log_dir, None, f"{path}: {error.strerror}")
    if not stat.S_ISDIR(mode):
        return FormattedDir(log_dir, None, f"{path} is no directory")
    if not os.access(path, os.R_OK | os.X_OK):
        return FormattedDir(log_dir, None, f"{path} is not readable")
    is_read_only, is_full = _room(path)
    problem = f"{path}: its file system has no room left for the files that a broker writes" if is_full else None
    return FormattedDir(log_dir, _meta(path, is_kraft), problem, is_read_only)


def _room(path: str) -> tuple[bool, bool]:
    """Return whether the file system of *path* is read-only, and whether it is full; neither if it does not tell.

    A file system without a size, as tmpfs can be, counts neither blocks nor inodes.  The reserved blocks are root's,
    whose broker owns its log dirs.  A broker writes small files in each log dir from its start on.  Kafka:
    ReplicaManager.checkpointHighWatermarks.
    """
    try:
        room, owner = os.statvfs(path), os.stat(path).st_uid
    except OSError:
        return False, False
    if room.f_flag & os.ST_RDONLY:
        return True, False
    blocks, files = (room.f_bavail, room.f_favail) if owner else (room.f_bfree, room.f_ffree)
    return False, (room.f_blocks > 0 and not blocks) or (room.f_files > 0 and not files)


def _meta(path: str, is_kraft: bool) -> MetaProperties | Malformed | None:
    file = os.path.join(path, FileKind.META_PROPERTIES.value)
    if not os.path.lexists(file):
        return None
    content = read_small(file)
    if isinstance(content, Malformed):
        return content
    return read_meta_properties(content) if is_kraft else _zookeeper_properties(content)


def _zookeeper_properties(content: bytes) -> MetaProperties | Malformed:
    """Return the content as a broker of ZooKeeper's time reads it: it stops later over numbers that are none.

    Kafka: BrokerMetadataCheckpoint.read, RawMetaProperties.
    """
    found = read_properties(content)
    if isinstance(found, Malformed):
        return found
    version, node_id = parse_int(found.get("version", "0")), parse_int(found.get("broker.id", ""))
    is_read = version is not None and (node_id is not None or "broker.id" not in found)
    return MetaProperties(
        version if version is not None and is_read else _NO_VERSION, found.get("cluster.id"), node_id, None, found
    )


def is_reserved(directory_id: str) -> bool:
    """Whether a log dir must not have this id.  Kafka: DirectoryId.reserved."""
    content = uuid_bytes(directory_id)
    return not any(content[:8]) and int.from_bytes(content[8:], "big", signed=True) < _RESERVED_IDS


def foreign_failure(
    log_dirs: Iterable[FormattedDir], repaired: Container[str], version: KafkaVersion
) -> StartFailure | None:
    """Return the directory whose name stops the broker; None without one.  *repaired*: log dirs without any."""
    for one in log_dirs:
        found = [] if one.path in repaired else foreign_names(one.log_dir, version)
        if found:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            message = (
                f"Found directory {os.path.join(one.path, found[0])}, '{found[0]}' is not in the form of "
                f"topic-partition or topic-partition.uniqueId-delete (if marked for deletion).{more}"
            )
            return StartFailure("foreign-directory", message, one.path, found[0])
    return None


def foreign_names(log_dir: LogDir, version: KafkaVersion) -> list[str]:
    """Return the directories of a log dir that a broker does not accept as partitions, by their names."""
    found = list(log_dir.foreign_directories)
    if not version.is_kraft:  # the format has no strays
        names = (partition.name for partition in log_dir.partitions)
        found += [name.name for name in names if name is not None and name.state is PartitionState.STRAY]
    return found


def check_kraft_format(
    dirs: Sequence[FormattedDir], metadata_dir: str, node_id: int | None, moved: Container[str] = ()
) -> StartFailure | None:
    """Return why a KRaft node stops here, None if it continues.  *node_id*: the configured one.

    *moved*: directories that are treated as moved away.

    Log dirs are taken in the order of their paths' names, as Kafka's sorted maps have them.
    """
    known = sorted((one for one in dirs if one.known is not None), key=lambda one: one.path)
    if not known:
        reason = "meta-properties-missing" if any(one.meta is None for one in dirs) else "meta-properties-malformed"
        return StartFailure(reason, "No readable meta.properties files found.", dirs[0].path)
    failure = _check_equality(known, node_id) or _check_metadata_dir(dirs, metadata_dir, moved)
    return failure or _check_completeness(dirs, known)


def _check_equality(known: Sequence[FormattedDir], node_id: int | None) -> StartFailure | None:
    cluster_id: str | None = None
    seen: dict[str, str] = {}
    for one in known:
        meta = one.known
        assert meta is not None
        file = os.path.join(one.path, FileKind.META_PROPERTIES.value)
        if meta.cluster_id is not None and cluster_id not in (None, meta.cluster_id):
            message = f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {meta.cluster_id}"
            return StartFailure("cluster-id-differs", message, one.path)
        cluster_id = cluster_id or meta.cluster_id
        if meta.node_id is not None and node_id not in (None, meta.node_id):
            message = f"Stored node id {meta.node_id} doesn't match previous node id {node_id} in {file}"
            return StartFailure("node-id-differs", message, one.path)
        node_id = meta.node_id if node_id is None else node_id
        if meta.directory_id is None:
            continue
        if is_reserved(meta.directory_id):
            message = f"Invalid reserved directory ID {meta.directory_id} found in {one.path}"
            return StartFailure("directory-id-reserved", message, one.path)
        if meta.directory_id in seen:
            found = f"It was the ID of {seen[meta.directory_id]}, but also of {one.path}"
            message = f"Duplicate directory ID {meta.directory_id} found. {found}"
            return StartFailure("directory-id-twice", message, one.path)
        seen[meta.directory_id] = one.path
    return None


def _check_metadata_dir(dirs: Sequence[FormattedDir], metadata_dir: str, moved: Container[str]) -> StartFailure | None:
    directory = f"{CLUSTER_METADATA}-0"
    for one in dirs:
        if one.path == metadata_dir and one.is_offline:
            message = f"Encountered I/O error in metadata log directory {metadata_dir}. Cannot continue."
            why = one.problem or str(one.meta)
            return StartFailure(one.reason or "", f"{message} ({why})", one.path)
    for one in dirs:
        place = os.path.join(one.path, directory)
        if one.path != metadata_dir and one.known and place not in moved and os.path.lexists(place):
            message = (
                f"Found unexpected metadata location in data directory `{place}` "
                f"(the configured metadata directory is {metadata_dir})."
            )
            return StartFailure("metadata-log-elsewhere", message, one.path, directory)
    return None


def _check_completeness(dirs: Sequence[FormattedDir], known: Sequence[FormattedDir]) -> StartFailure | None:
    for one in sorted(dirs, key=lambda one: one.path):
        if one.meta is None and one.problem is None:
            message = (
                f"No `meta.properties` found in {one.path} (have you run `kafka-storage.sh` to format the directory?)"
            )
            return StartFailure("meta-properties-missing", message, one.path)
    for one in known:
        assert one.known is not None
        if one.known.node_id is None:
            return StartFailure("meta-properties-malformed", f"Error: node ID not found in {one.path}", one.path)
        if one.known.cluster_id is None:
            return StartFailure("meta-properties-malformed", f"Error: cluster ID not found in {one.path}", one.path)
    return None


def check_zookeeper_format(
    dirs: Sequence[FormattedDir], node_id: int | None, cluster_id: str | None
) -> StartFailure | None:
    """Return why a broker with ZooKeeper stops here, None if it continues.  It formats new log dirs itself.

    *cluster_id*: the one in ZooKeeper, if known.
    """
    for one in dirs:
        # One that cannot be read at all takes its log dir offline; a broken escape is no IOException.
        if isinstance(one.meta, Malformed) and one.meta.line:
            return StartFailure("meta-properties-malformed", f"{one.path}: {one.meta}", one.path)
    known = [(one, one.known) for one in dirs if one.known is not None]
    failure = _check_sameness(known)
    if failure is not None or not known:
        return failure
    one, meta = known[0]
    if meta.version != 0:
        message = f"Found unexpected version in loaded `meta.properties`, or what is no number: {meta.properties}"
        return StartFailure("meta-properties-malformed", message, one.path)
    if meta.cluster_id is not None and cluster_id not in (None, meta.cluster_id):
        message = f"The Cluster ID {cluster_id} doesn't match stored clusterId Some({meta.cluster_id})"
        return StartFailure("cluster-id-differs", message, one.path)
    if meta.node_id is not None and node_id not in (None, meta.node_id):
        message = f"Configured broker.id {node_id} doesn't match stored broker.id Some({meta.node_id})"
        return StartFailure("node-id-differs", message, one.path)
    return None


def _check_sameness(known: Sequence[tuple[FormattedDir, MetaProperties]]) -> StartFailure | None:
    """Return the differences between the files: before KRaft all of their lines have to be the same, in any order."""
    if all(meta.properties == known[0][1].properties for _, meta in known):
        return None
    message = "BrokerMetadata is not consistent across log.dirs."
    clusters = {meta.cluster_id for _, meta in known} - {None}
    nodes = {meta.node_id for _, meta in known} - {None}
    if len(clusters) > 1 or len(nodes) > 1:
        return StartFailure(
            "cluster-id-differs" if len(clusters) > 1 else "node-id-differs", message, known[-1][0].path
        )
    worst = min(known, key=lambda one: (one[1].version == 0, len(one[1].properties)))
    return StartFailure("meta-properties-malformed", message, worst[0].path)
