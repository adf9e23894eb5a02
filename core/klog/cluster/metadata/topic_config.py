"""The settings of a topic that a log dir contains, each with its value and origin.  Kafka: LogConfig.

    config = TopicConfig(LogDir("data"), {"segment.bytes": "1048576"})
    config.value("orders", "index.interval.bytes")    # Setting(4096, SettingOrigin.DEFAULT, "index.interval.bytes")

The first of these counts: the option; the topic's own setting in the metadata log, or, if there is none, in the
`klog-follow.json` of a copy; the dynamic setting for the broker or for all brokers; the broker's `server.properties`,
which is not in a log dir; Kafka's default, which without that file is an assumption.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from klog.base.errors import DamagedError, UsageError, near_misses
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import open_path
from klog.formats.batch import OVERHEAD
from klog.formats.checkpoint import Malformed
from klog.formats.follow_file import FOLLOW_FILE
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import CLUSTER_METADATA

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

Value: TypeAlias = "int | float | bool | str | tuple[str, ...]"


class SettingOrigin(StrEnum):
    """The origin of a setting."""

    OPTION = "option"
    TOPIC = "topic"
    BROKER = "broker"
    FILE = "server.properties"
    DEFAULT = "default"


class Setting(NamedTuple):
    """A setting: bytes and ms are int, a list is a tuple of words.  *name*: under which it was found."""

    value: Value
    origin: SettingOrigin
    name: str

    @property
    def number(self) -> int:
        """The value of a setting that is a whole number."""
        assert isinstance(self.value, int)
        return self.value

    @property
    def ratio(self) -> float:
        """The value of a setting that is a part of one."""
        assert isinstance(self.value, float)
        return self.value

    @property
    def flag(self) -> bool:
        """The value of a setting that is true or false."""
        assert isinstance(self.value, bool)
        return self.value

    @property
    def words(self) -> tuple[str, ...]:
        """The value of a setting that is a list."""
        assert isinstance(self.value, tuple)
        return self.value

    def told(self, knows_file: bool) -> str:
        """Return it with its origin, in words; *knows_file*: the content of `server.properties` is known."""
        origin = _ORIGINS[self.origin]
        if self.origin is SettingOrigin.DEFAULT and not knows_file:
            origin += " (server.properties is not known)"
        return f"{self.name}={','.join(self.words) if isinstance(self.value, tuple) else self.value}, {origin}"


_ORIGINS: Final = {
    SettingOrigin.OPTION: "as given",
    SettingOrigin.TOPIC: "the topic's",
    SettingOrigin.BROKER: "set for the broker",
    SettingOrigin.FILE: "of server.properties",
    SettingOrigin.DEFAULT: "Kafka's default",
}


# ---------------------------------------------------------------- the form of settings

_INT, _LONG = 2**31 - 1, LONG_MAX


class _Kind(NamedTuple):
    """How a value is parsed; *read* raises ValueError for an invalid one.  *expected* describes valid values."""

    read: Callable[[str], Value]
    expected: str


def _whole(lowest: int, highest: int) -> _Kind:
    def read(text: str) -> int:
        # Not isdecimal alone: int() also takes other scripts' digits, and text of any length.
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None or not lowest <= int(text) <= highest:
            raise ValueError(text)
        return int(text)

    return _Kind(read, f"a whole number from {lowest} to {highest}")


def _read_ratio(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def _one_of(*known: str) -> _Kind:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return _Kind(read, f"one of {', '.join(known)}")


def _some_of(*known: str) -> _Kind:
    def read(text: str) -> tuple[str, ...]:
        words = tuple(word.strip().lower() for word in text.split(",")) if text else ()
        if not set(known).issuperset(words):
            raise ValueError(text)
        return words

    return _Kind(read, f"a list, with commas, of {' and '.join(known)}")


_RATIO: Final = _Kind(_read_ratio, "a number from 0 to 1")
_FLAG: Final = _Kind(lambda text: {"true": True, "false": False}[text.lower()], "true or false")
_MS: Final = _whole(0, _LONG)
_LOCAL: Final = _whole(-2, _LONG)
_UNITS: Final = _whole(-1, _INT)


class _Known(NamedTuple):
    """A setting that klog knows.

    *broker*: the broker's names for it, the one with precedence first, with the ms of its unit (1 if the unit is the
    topic's).  *instead*: a topic's setting that takes precedence.
    """

    kind: _Kind
    default: Value
    broker: Mapping[str, int]
    instead: str | None = None


_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_DAY_MS, _WEEK_MS = 24 * _HOUR_MS, 168 * _HOUR_MS
_ROLL: Final = {"log.roll.ms": 1, "log.roll.hours": _HOUR_MS}
_RETENTION: Final = {"log.retention.ms": 1, "log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS}
_COMPRESSION: Final = _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_TIMESTAMP: Final = _one_of("CreateTime", "LogAppendTime")
# Brokers before 4.0 took segments as small as a message.
_SEGMENT_BYTES: Final = _Known(_whole(14, _INT), 1 << 30, {"log.segment.bytes": 1}, "internal.segment.bytes")

_KNOWN: Final[Mapping[str, _Known]] = {
    "segment.bytes": _SEGMENT_BYTES,
    "segment.ms": _Known(_whole(1, _LONG), _WEEK_MS, _ROLL),
    "segment.index.bytes": _Known(_whole(4, _INT), 10 << 20, {"log.index.size.max.bytes": 1}),
    "index.interval.bytes": _Known(_whole(0, _INT), 4096, {"log.index.interval.bytes": 1}),
    "cleanup.policy": _Known(_some_of("compact", "delete"), ("delete",), {"log.cleanup.policy": 1}),
    "delete.retention.ms": _Known(_MS, _DAY_MS, {"log.cleaner.delete.retention.ms": 1}),
    "min.compaction.lag.ms": _Known(_MS, 0, {"log.cleaner.min.compaction.lag.ms": 1}),
    "max.compaction.lag.ms": _Known(_whole(1, _LONG), _LONG, {"log.cleaner.max.compaction.lag.ms": 1}),
    "min.cleanable.dirty.ratio": _Known(_RATIO, 0.5, {"log.cleaner.min.cleanable.ratio": 1}),
    "retention.ms": _Known(_whole(-1, _LONG), _WEEK_MS, _RETENTION),
    "retention.bytes": _Known(_whole(-_LONG - 1, _LONG), -1, {"log.retention.bytes": 1}),
    "local.retention.ms": _Known(_LOCAL, -2, {"log.local.retention.ms": 1}),
    "local.retention.bytes": _Known(_LOCAL, -2, {"log.local.retention.bytes": 1}),
    "max.message.bytes": _Known(_whole(0, _INT), (1 << 20) + OVERHEAD, {"message.max.bytes": 1}),
    "message.timestamp.type": _Known(_TIMESTAMP, "CreateTime", {"log.message.timestamp.type": 1}),
    "compression.type": _Known(_COMPRESSION, "producer", {"compression.type": 1}),
    "preallocate": _Known(_FLAG, False, {"log.preallocate": 1}),
    "file.delete.delay.ms": _Known(_MS, 60_000, {"log.segment.delete.delay.ms": 1}),
    "remote.storage.enable": _Known(_FLAG, False, {}),
    "unclean.leader.election.enable": _Known(_FLAG, False, {"unclean.leader.election.enable": 1}),
    "min.insync.replicas": _Known(_whole(1, _INT), 1, {"min.insync.replicas": 1}),
    "producer.id.expiration.ms": _Known(_whole(1, _INT), _DAY_MS, {"producer.id.expiration.ms": 1}),
    "offsets.retention.minutes": _Known(_whole(1, _INT), 10080, {"offsets.retention.minutes": 1}),
    "offsets.retention.check.interval.ms": _Known(
        _whole(1, _LONG), 600_000, {"offsets.retention.check.interval.ms": 1}
    ),
}
"""The known settings by the topic's name; the last three exist only for brokers.  Kafka: LogConfig,
ServerTopicConfigSynonyms, TransactionLogConfig, GroupCoordinatorConfig; defaults as in 4.3."""

_SMALL_SEGMENTS: Final = {"segment.bytes": 100 << 20}
_INTERNAL: Final[Mapping[str, Mapping[str, Value]]] = {
    "__consumer_offsets": {"cleanup.policy": ("compact",), **_SMALL_SEGMENTS},
    "__transaction_state": {"cleanup.policy": ("compact",), "compression.type": "uncompressed", **_SMALL_SEGMENTS},
    "__share_group_state": {"retention.ms": -1, **_SMALL_SEGMENTS},
    CLUSTER_METADATA: {"retention.ms": -1, "max.message.bytes": 8 << 20},
}
"""The settings, other than defaults, of the topics that Kafka creates for itself.  Kafka: the coordinators'
…TopicConfigs, KafkaRaftLog.createLog."""


class TopicConfig:
    """The settings of the topics in *log_dir* (None: nothing is known of it), with *options*.

    *options*: texts by the topics' names for them, in Kafka's own notation (bytes, ms).  *metadata*: the log dir with
    the metadata log, if it is a different one.  The metadata log is read once, when it is first needed.  *file*: the
    content of the broker's `server.properties`.
    Raises UsageError for an unknown option, for a *metadata* without a metadata log or with that of another cluster,
    UnreadableError for one that cannot be listed.
    """

    def __init__(
        self,
        log_dir: LogDir | None = None,
        options: Mapping[str, str] = {},
        metadata: LogDir | None = None,
        file: Mapping[str, str] = {},
        cluster: ClusterMetadata | None = None,
    ) -> None:
        self._log_dir, self._file, self._cluster = log_dir, file, cluster
        self._metadata_dir = log_dir if metadata is None else metadata
        self._options = {name: _option(name, text) for name, text in options.items()}
        if metadata is not None:
            _check_metadata(metadata, log_dir)

    def on(self, log_dir: LogDir) -> TopicConfig:
        """Return the settings as the broker of *log_dir* has them, with the same options."""
        found = TopicConfig(log_dir, {}, file=self._file, cluster=self.metadata)
        found._options = self._options
        return found

    @cached_property
    def metadata(self) -> ClusterMetadata | None:
        """The content of the metadata log; None if there is none."""
        if self._cluster is not None:
            return self._cluster
        if self._metadata_dir is None or self._metadata_dir.metadata_log is None:
            return None
        from klog.cluster.metadata.metadata_loader import read_metadata

        return read_metadata(self._metadata_dir)

    @property
    def damage(self) -> tuple[str, ...]:
        """The faults of the metadata log, as far as it has been read: settings may be missing."""
        read: ClusterMetadata | None = vars(self).get("metadata")
        return () if read is None else read.damage

    @cached_property
    def _copied(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of each topic in the cluster of which this is a copy.  Raises DamagedError."""
        found = self._log_dir.checkpoints.follow_file if self._log_dir is not None else None
        if isinstance(found, Malformed):
            assert self._log_dir is not None
            advice = "correct it, or move it away: the directory is then no copy, and topics have Kafka's defaults"
            raise DamagedError(f"{self._log_dir.path}/{FOLLOW_FILE}: {found}; {advice}")
        return {name: topic.config for name, topic in found.topics.items()} if found is not None else {}

    def _set_on(self, topic: str) -> Mapping[str, str]:
        """Return the known settings of *topic* itself."""
        return self._copied.get(topic, {}) if self.metadata is None else self.metadata.topic_config(topic)

    def _knows(self, topic: str) -> bool:
        return topic in (self._copied if self.metadata is None else self.metadata.topic_ids)

    def is_known(self, topic: str | None) -> bool:
        """Whether the settings of *topic* itself are known; if not, a broker's settings and defaults count."""
        is_whole = self.metadata is None or self.metadata.complete
        return topic is not None and is_whole and self._knows(topic)

    @property
    def knows_file(self) -> bool:
        """Whether the content of the broker's `server.properties` is known."""
        return bool(self._file)

    @cached_property
    def _broker(self) -> Mapping[str, str]:
        if self.metadata is None or self._log_dir is None:
            return {}
        return self.metadata.broker_config(self._log_dir.node_id)

    def value(self, topic: str | None, name: str) -> Setting:
        """Return a setting of *topic*; None: the setting of topics without one of their own.

        An invalid text, which no broker would have accepted, is ignored.  Raises KeyError for a *name* that klog does
        not know.
        """
        known = _KNOWN[name]
        if name in self._options:
            return Setting(self._options[name], SettingOrigin.OPTION, name)
        return (
            self._of_topic(topic, name, known)
            or self._of_kafkas_own(topic, name)
            or (self._of_broker(known) if topic != CLUSTER_METADATA else None)
            or Setting(known.default, SettingOrigin.DEFAULT, name)
        )

    def _of_topic(self, topic: str | None, name: str, known: _Known) -> Setting | None:
        if topic is None:
            return None
        texts = self._set_on(topic)
        for found_as in (known.instead, name):
            value = _read(known.kind, texts.get(found_as)) if found_as is not None else None
            if found_as is not None and value is not None:
                return Setting(value, SettingOrigin.TOPIC, found_as)
        return None

    def _of_kafkas_own(self, topic: str | None, name: str) -> Setting | None:
        """If the cluster's metadata are here, these settings were set there; others mean that they have changed."""
        if topic is None or self._knows(topic):
            return None
        value = _INTERNAL.get(topic, {}).get(name)
        return None if value is None else Setting(value, SettingOrigin.DEFAULT, name)

    def _of_broker(self, known: _Known) -> Setting | None:
        dynamic = self._broker
        for found_as, unit_ms in known.broker.items():
            text = dynamic.get(found_as, self._file.get(found_as))
            if unit_ms != 1:
                units = _read(_UNITS, text)
                text = str(units * unit_ms if units > 0 else units) if isinstance(units, int) else None
            value = _read(known.kind, text)
            if value is not None:
                return Setting(value, SettingOrigin.BROKER if found_as in dynamic else SettingOrigin.FILE, found_as)
        return None


def _read(kind: _Kind, text: str | None) -> Value | None:
    """Return the value of *text*; None if there is none, or if it is invalid."""
    try:
        return None if text is None else kind.read(text.strip())
    except (ValueError, KeyError):
        return None


def _check_metadata(metadata: LogDir, log_dir: LogDir | None) -> None:
    if metadata.metadata_log is None:
        raise UsageError(f"{metadata.path}: no {CLUSTER_METADATA} here; expected a controller's metadata.log.dir")
    if log_dir is not None and None not in (ids := (metadata.cluster_id, log_dir.cluster_id)) and ids[0] != ids[1]:
        raise UsageError(f"{metadata.path}: of cluster {ids[0]}, but {log_dir.path} is of {ids[1]}")


def _option(name: str, text: str) -> Value:
    if name not in _KNOWN:
        raise UsageError(f"{name} is an unknown setting{near_misses(name, _KNOWN)}")
    value = _read(_KNOWN[name].kind, text)
    if value is None:
        raise UsageError(f"{name}={text}: expected {_KNOWN[name].kind.expected}")
    return value


def parse_settings(given: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the settings in `NAME=VALUE` options; only those of *names* are accepted.

    internal.segment.bytes has precedence over segment.bytes.  Raises UsageError.
    """
    found: dict[str, str] = {}
    small = _SEGMENT_BYTES.instead
    for one in given:
        name, equals, value = one.partition("=")
        if name not in (*names, small):
            raise UsageError(f"--set {one}: {name} has no effect here{near_misses(name, names)}")
        if not equals:
            raise UsageError(f"--set {one}: expected NAME=VALUE")
        found[name] = value
    if small in found:
        found["segment.bytes"] = found.pop(small)
    return found


def topic_configs(
    log_dirs: Sequence[LogDir], options: Mapping[str, str], metadata: str | None = None, file: Mapping[str, str] = {}
) -> list[TopicConfig]:
    """Return the settings that hold in each log dir: of a broker's log dirs one has the metadata log.

    *options*: settings that are given, by their names.  *metadata*: the path of a log dir that has the metadata log.
    *file*: the content of the broker's `server.properties`.  Raises UsageError, UnreadableError.
    """
    given: LogDir | None = None
    if metadata is not None:
        opened = open_path(metadata)
        if not isinstance(opened, LogDir):
            raise UsageError(f"--metadata {metadata}: no log dir with a metadata log (__cluster_metadata-0)")
        given = opened
    with_metadata = [one for one in log_dirs if one.metadata_log is not None]
    found = []
    for log_dir in log_dirs:
        of_cluster = (one for one in with_metadata if one.cluster_id == log_dir.cluster_id)
        own = log_dir if log_dir in with_metadata else next(of_cluster, None)
        found.append(TopicConfig(log_dir, options, given or own, file))
    return found
