"""The first step of a start: `meta.properties` of all log dirs together, before anything is locked or loaded.

Kafka: KafkaRaftServer.initializeLogDirs, MetaPropertiesEnsemble; before KRaft KafkaServer.startup,
BrokerMetadataCheckpoint.getBrokerMetadataAndOfflineDirs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from klog.data_dir.log_dir import LogDir
from klog.data_dir.root_files import read_small
from klog.doctor.outcome import StartFailure
from klog.formats.checkpoint import Malformed
from klog.formats.java_text import uuid_bytes
from klog.formats.names import CLUSTER_METADATA, FileKind
from klog.formats.properties import MetaProperties, read_meta_properties

_RESERVED_IDS: Final = 100


class FormattedDir(NamedTuple):
    """A log dir at this step.  *meta*: None where there is no file.  *problem*: the dir is no directory that opens."""

    log_dir: LogDir
    meta: MetaProperties | Malformed | None
    problem: str | None = None

    @property
    def path(self) -> str:
        """The path of the log dir, as it was given."""
        return self.log_dir.path

    @property
    def known(self) -> MetaProperties | None:
        """The content of the file where a broker takes it."""
        return self.meta if isinstance(self.meta, MetaProperties) else None

    @property
    def is_there(self) -> bool:
        """Whether it is a directory that can be listed."""
        return self.problem is None and os.path.isdir(self.path)

    @property
    def is_offline(self) -> bool:
        """Whether the broker goes on without it, if it can."""
        return self.problem is not None or isinstance(self.meta, Malformed)

    @property
    def reason(self) -> str | None:
        """The id of what is wrong with it alone."""
        if self.problem is not None:
            return "log-dir-unusable"
        return None if self.known else "meta-properties-missing" if self.meta is None else "meta-properties-malformed"


def read_format(path: str) -> FormattedDir:
    """Return what a broker reads of a log dir at first."""
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
    file = os.path.join(path, FileKind.META_PROPERTIES.value)
    if not os.path.lexists(file):
        return FormattedDir(log_dir, None)
    content = read_small(file)
    return FormattedDir(log_dir, content if isinstance(content, Malformed) else read_meta_properties(content))


def is_reserved(directory_id: str) -> bool:
    """Whether a log dir must not have this id.  Kafka: DirectoryId.reserved."""
    content = uuid_bytes(directory_id)
    return not any(content[:8]) and int.from_bytes(content[8:], "big", signed=True) < _RESERVED_IDS


def check_kraft_format(dirs: Sequence[FormattedDir], metadata_dir: str, node_id: int | None) -> StartFailure | None:
    """Return why a KRaft node stops here, None if it goes on.  *node_id*: the configured one.

    Log dirs are taken in the order of their paths' names, as Kafka's sorted maps have them.
    """
    known = sorted((one for one in dirs if one.known is not None), key=lambda one: one.path)
    if not known:
        reason = "meta-properties-missing" if any(one.meta is None for one in dirs) else "meta-properties-malformed"
        return StartFailure(reason, "No readable meta.properties files found.", dirs[0].path)
    failure = _check_equality(known, node_id) or _check_metadata_dir(dirs, metadata_dir)
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


def _check_metadata_dir(dirs: Sequence[FormattedDir], metadata_dir: str) -> StartFailure | None:
    directory = f"{CLUSTER_METADATA}-0"
    for one in dirs:
        if one.path == metadata_dir and one.is_offline:
            message = f"Encountered I/O error in metadata log directory {metadata_dir}. Cannot continue."
            why = one.problem or str(one.meta)
            return StartFailure(one.reason or "", f"{message} ({why})", one.path)
    for one in dirs:
        if one.path != metadata_dir and one.known and os.path.lexists(os.path.join(one.path, directory)):
            message = (
                f"Found unexpected metadata location in data directory `{os.path.join(one.path, directory)}` "
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
    """Return why a broker of ZooKeeper's time stops here, None if it goes on.  It formats new log dirs itself.

    *cluster_id*: the one that ZooKeeper has, where it is known.
    """
    known = [one for one in dirs if one.known is not None]
    metas = [one.known for one in known if one.known is not None]
    facts = {(meta.version, meta.cluster_id, meta.node_id) for meta in metas}
    if len(facts) > 1:
        key = "cluster-id-differs" if len({meta.cluster_id for meta in metas}) > 1 else "node-id-differs"
        message = "BrokerMetadata is not consistent across log.dirs."
        return StartFailure(key, message, known[-1].path)
    for version, stored_cluster, stored_node in facts:
        if version != 0:
            message = f"Found unexpected version in loaded `meta.properties`: version={version}"
            return StartFailure("meta-properties-malformed", message, known[0].path)
        if stored_cluster is not None and cluster_id not in (None, stored_cluster):
            message = f"The Cluster ID {cluster_id} doesn't match stored clusterId Some({stored_cluster})"
            return StartFailure("cluster-id-differs", message, known[0].path)
        if stored_node is not None and node_id not in (None, stored_node):
            message = f"Configured broker.id {node_id} doesn't match stored broker.id {stored_node}"
            return StartFailure("node-id-differs", message, known[0].path)
    return None
