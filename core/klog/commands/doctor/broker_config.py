"""The settings in a broker's own file, `server.properties`, about its log dirs and itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.base.errors import UsageError
from klog.data_dir.root_files import read_server_properties
from klog.formats.java_integers import LONG_MAX
from klog.formats.java_text import parse_int, parse_long

DELETE_DELAY_MS: Final = 60_000


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
        raise UsageError("name the broker's log dirs, or its server.properties with --config")
    if given and configured and list(map(os.path.realpath, given)) != list(map(os.path.realpath, configured)):
        raise UsageError(f"{file} has log.dirs={','.join(configured)}, and the command line {','.join(given)}")
    return tuple(given) or configured
