"""The options of the data source, those of Spark's own Kafka source and ours, and the partitions that they select.

    wanted = read_options({"path": "/data/broker-1", "subscribe": "orders"})
    wanted.paths, wanted.topics, wanted.starting

Names are case-insensitive, as everywhere in Spark.  Options that only make sense for a live cluster (addresses,
timeouts, consumer groups) are accepted and ignored, so that a job can keep all its options.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from klog.base.errors import UsageError, near_misses
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.read_options import CACHES, PRIORITIES, Cache, Priority, ReadOptions
from klog.formats.names import CLUSTER_METADATA, INTERNAL
from klog.jobs.slices import SPLIT_BYTES
from klog.jobs.spark_rows import COLUMNS, KAFKA_COLUMNS
from klog.log.reader import MAX_BATCH_BYTES
from klog.partition.transactions.isolation import Isolation
from klog.spark.read_bounds import EARLIEST, LATEST, OffsetBound, read_time, read_times, read_words
from klog.spark.remote_tiers import TierMount
from klog.tier.tier_address import TierAddress

if TYPE_CHECKING:
    from klog.jobs.schema_output import ExportSchemas

REPLICAS: Final = ("longest", "all", "leader-epoch")
ISOLATIONS: Final = ("read_uncommitted", "read_committed")
LEAST_SPLIT_BYTES: Final = 4096

Damage = Literal["fail", "skip", "column"]

_OURS = (
    "path paths columns isolation damage splitBytes maxBatchBytes pushdown replicas cluster topicId byName"
    " subscribe subscribePattern assign startingOffsets endingOffsets startingTimestamp endingTimestamp"
    " startingOffsetsByTimestamp endingOffsetsByTimestamp startingOffsetsByTimestampStrategy includeHeaders"
    " failOnDataLoss minPartitions maxOffsetsPerTrigger cache rate priority remote remoteLayout remoteKeys"
    " schemas schemasTopic jsonForm readerSchema"
)
_NOTHING_ON_DISK = (
    "groupIdPrefix kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs"
    " minOffsetsPerTrigger maxTriggerDelay maxRecordsPerPartition"
)
_KNOWN = {name.lower(): name for name in f"{_OURS} {_NOTHING_ON_DISK}".split()}
_PASSED_ON = "kafka."
_IDENTITY_OPTIONS = ("cluster", "topicId", "byName")
_ISOLATION_OF_CONSUMER = "kafka.isolation.level"


AUTO: Final = "auto"


class SchemaWishes(NamedTuple):
    """The options about schemas.  *paths*: of registries' topics; *topic*: the name of `_schemas`."""

    paths: tuple[str, ...]
    topic: str = "_schemas"
    canonical: bool = False
    reader: str = "latest"


@dataclass(frozen=True)
class SourceOptions:
    """All options, parsed and checked against each other.

    *tasks*: the minimum number, None for the default.  *max_offsets*: per trigger, None for no limit.  *late*: the
    start if no record has the timestamp or a later one, "error" or "latest".  *reads*: the way in which logs are read.
    *tier*: remote storage, None for the local logs alone.  *schemas*: how keys and values are decoded.
    """

    paths: tuple[str, ...]
    topics: Topics
    starting: OffsetBound
    ending: OffsetBound
    late: str
    columns: tuple[str, ...]
    isolation: Isolation
    damage: Damage
    fail_on_data_loss: bool
    replicas: str
    identity: IdentityChoice
    pushdown: bool
    split_bytes: int
    max_batch_bytes: int
    tasks: int | None
    max_offsets: int | None
    reads: ReadOptions
    tier: TierAddress | None = None
    schemas: ExportSchemas | None = None

    @property
    def mount(self) -> TierMount | None:
        """The request for the remote segments; None without remote storage."""
        return None if self.tier is None else TierMount(self.tier, self.paths, self.topics.subscribed)


class _Given:
    """The options as they were given: strings, names in any case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        for name in self._options:
            if name not in _KNOWN and not name.startswith(_PASSED_ON):
                raise UsageError(f"no option {name}{near_misses(name, _KNOWN.values())}")

    def text(self, name: str) -> str | None:
        """Return the text of an option; None without one."""
        return self._options.get(name.lower())

    def choice(self, name: str, choices: tuple[str, ...], otherwise: str) -> str:
        """Return one of *choices*.  Raises UsageError for anything else."""
        given = self._options.get(name.lower(), otherwise).lower()
        if given not in choices:
            raise UsageError(f"{name}: {given!r} is none of {', '.join(choices)}{near_misses(given, choices)}")
        return given

    def yes(self, name: str, otherwise: bool) -> bool:
        """Return whether an option is true."""
        return self.choice(name, ("true", "false"), str(otherwise).lower()) == "true"

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of a list with commas, none when it was not given."""
        given = self.text(name)
        found = tuple(part.strip() for part in (given or "").split(",") if part.strip())
        if given is not None and not found:
            raise UsageError(f"{name}: no id is given")
        return found

    def number(self, name: str, least: int) -> int | None:
        """Return a number from *least* up; None when it was not given."""
        given = self.text(name)
        if given is None:
            return None
        if not given.strip().isdecimal() or int(given) < least:
            raise UsageError(f"{name}: {given!r} is not a whole number from {least} up")
        return int(given)

    def first(self, readers: Mapping[str, Callable[[str, str], OffsetBound]], otherwise: int) -> OffsetBound:
        """Return the bound of the first of *readers* whose option was given: the order is Spark's."""
        for name, read in readers.items():
            given = self.text(name)
            if given is not None:
                return read(name, given)
        return OffsetBound(list(readers)[-1], otherwise)


def read_options(options: Mapping[str, str], streaming: bool = False) -> SourceOptions:
    """Parse *options*.  Raises UsageError for unknown, malformed or contradictory ones."""
    given = _Given(options)
    starting, ending = _bounds(given, streaming)
    fail_on_data_loss = given.yes("failOnDataLoss", True)
    damage = _damage(given, "fail" if fail_on_data_loss else "skip")
    isolation = given.choice("isolation", ISOLATIONS, given.choice(_ISOLATION_OF_CONSUMER, ISOLATIONS, ISOLATIONS[0]))
    return SourceOptions(
        paths=_paths(given),
        topics=read_topics(*(given.text(name) for name in ("subscribe", "subscribePattern", "assign"))),
        starting=starting,
        ending=ending,
        late=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        columns=_columns(given, damage),
        isolation="read_committed" if isolation == "read_committed" else "read_uncommitted",
        damage=damage,
        fail_on_data_loss=fail_on_data_loss,
        replicas=given.choice("replicas", REPLICAS, REPLICAS[0]),
        identity=IdentityChoice(
            given.names("cluster"), given.names("topicId"), given.yes("byName", False), _IDENTITY_OPTIONS
        ),
        pushdown=given.yes("pushdown", False),
        split_bytes=_bytes(given, "splitBytes", LEAST_SPLIT_BYTES, SPLIT_BYTES),
        max_batch_bytes=_bytes(given, "maxBatchBytes", 1, MAX_BATCH_BYTES),
        tasks=given.number("minPartitions", 1),
        max_offsets=given.number("maxOffsetsPerTrigger", 1),
        reads=_reads(given),
        tier=_tier(given, streaming),
    )


def _tier(given: _Given, streaming: bool) -> TierAddress | None:
    """Return the tier that `remote`, `remoteLayout` and `remoteKeys` name.  Raises UsageError."""
    uri, layout = given.text("remote"), given.text("remoteLayout")
    if uri is None:
        if layout is not None or given.text("remoteKeys") is not None:
            raise UsageError("remoteLayout, remoteKeys: they need the option remote")
        return None
    if streaming:
        raise UsageError("remote: a stream follows the local log; read what is in remote storage in a batch")
    from klog.tier.tier import LAYOUTS, is_url

    if layout is not None:
        layout = given.choice("remoteLayout", LAYOUTS, layout)
    pairs = [one.partition("=") for one in given.names("remoteKeys")]
    if not all(key_id and path for key_id, _, path in pairs):
        raise UsageError("remoteKeys: expected KEYID=FILE, with commas between several")
    uri = uri if is_url(uri) else _local(uri)
    return TierAddress(uri, layout, tuple((key_id, _local(path)) for key_id, _, path in pairs))


def _reads(given: _Given) -> ReadOptions:
    """Return the way in which logs are read; without an option the lock of the log dir decides."""
    cache = given.choice("cache", CACHES, "drop") if given.text("cache") is not None else None
    priority = given.choice("priority", PRIORITIES, "low") if given.text("priority") is not None else None
    rate = _bytes(given, "rate", 1, 1) if given.text("rate") is not None else None
    return ReadOptions(cast("Cache | None", cache), rate, cast("Priority | None", priority))


def read_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of *options*.  Raises UsageError; of the other options only the names are checked."""
    given = _Given(options)
    return _columns(given, _damage(given, "fail"))


def read_schema_wishes(options: Mapping[str, str]) -> SchemaWishes | None:
    """Return the options about schemas, None without `schemas`.  Raises UsageError."""
    given = _Given(options)
    text, reader = given.text("schemas"), given.text("readerSchema") or "latest"
    form = given.choice("jsonForm", ("plain", "canonical"), "plain")
    if text is None:
        return None
    if form == "canonical" and reader != "each":
        raise UsageError("jsonForm: columns have types; use it with readerSchema each")
    paths = tuple(path if path == AUTO else _local(path) for path in map(str.strip, text.split(",")) if path)
    return SchemaWishes(paths, given.text("schemasTopic") or "_schemas", form == "canonical", reader)


def _bounds(given: _Given, streaming: bool) -> tuple[OffsetBound, OffsetBound]:
    starts = {
        "startingTimestamp": read_time,
        "startingOffsetsByTimestamp": read_times,
        "startingOffsets": read_words,
    }
    ends = {"endingTimestamp": read_time, "endingOffsetsByTimestamp": read_times, "endingOffsets": read_words}
    if streaming:
        for name in ends:
            if given.text(name) is not None:
                raise UsageError(
                    f"{name}: a stream has no end; trigger(availableNow=True) stops where the log ends now"
                )
        return given.first(starts, LATEST), OffsetBound("endingOffsets", LATEST)
    starting, ending = given.first(starts, EARLIEST), given.first(ends, LATEST)
    for bound, word, wrong in ((starting, "latest", LATEST), (ending, "earliest", EARLIEST)):
        if not bound.by_time and wrong in (bound.everywhere, *bound.each.values()):
            raise UsageError(f"{bound.option}: {word} ({wrong}) leaves nothing to read in a batch")
    return starting, ending


def _damage(given: _Given, otherwise: Damage) -> Damage:
    words: dict[str, Damage] = {"fail": "fail", "skip": "skip", "column": "column"}
    return words[given.choice("damage", tuple(words), otherwise)]


_FILE_URI = re.compile(r"file:(?://)?(/.*)", re.DOTALL | re.IGNORECASE)
_SIZE = re.compile(r"(\d+)\s*(?:([kmg])(?:i?b)?|b)?", re.IGNORECASE)


def _bytes(given: _Given, name: str, least: int, otherwise: int) -> int:
    """Return a size: bytes, or with k, m, g for their powers of 1024, as in Spark's own settings."""
    text = given.text(name)
    if text is None:
        return otherwise
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{name}: {text!r} is not a size; expected bytes, or 64m, 1g")
    size = int(match[1]) << 10 * (" kmg".index(match[2].lower()) if match[2] else 0)
    if not least <= size < 2**31:
        raise UsageError(f"{name}: {text!r} is not between {least} bytes and 2 GiB")
    return size


def _paths(given: _Given) -> tuple[str, ...]:
    """Return the paths of `path` (separated by commas, as in log.dirs) or `paths` (JSON, from load([…])), absolute.

    Tasks may run elsewhere, with another working directory.
    """
    path, paths = given.text("path"), given.text("paths")
    if path and paths:
        raise UsageError("path and paths: one of the two")
    if paths:
        try:
            found = json.loads(paths)
        except ValueError as error:
            raise UsageError(f"paths: {paths[:60]!r} is not a JSON list of paths") from error
        if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
            raise UsageError(f"paths: {paths[:60]!r} is not a JSON list of paths")
        return tuple(_local(each) for each in found)
    if path and os.path.lexists(_local(path)):
        return (_local(path),)
    found = [part.strip() for part in (path or "").split(",") if part.strip()]
    if not found:
        raise UsageError(
            "path: none is given; load() a broker's log dir (what log.dirs names) or a partition's directory"
        )
    return tuple(_local(each) for each in found)


def _local(path: str) -> str:
    """Return a path, or a `file:` URI as Hadoop writes it, as an absolute path."""
    uri = None if os.path.lexists(path) else _FILE_URI.fullmatch(path)
    return os.path.abspath(uri[1] if uri else path)


def _columns(given: _Given, damage: str) -> tuple[str, ...]:
    text = given.text("columns")
    columns = [part.strip() for part in text.split(",")] if text is not None else list(KAFKA_COLUMNS)
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"columns: no column {name!r}{near_misses(name, COLUMNS)}; there are {', '.join(COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise UsageError(f"columns: {text} has one of them twice")
    for name, asked in (("headers", given.yes("includeHeaders", False)), ("damage", damage == "column")):
        if asked and name not in columns:
            columns.append(name)
    return tuple(columns)


KAFKAS_OWN: Final = frozenset((*INTERNAL, CLUSTER_METADATA))
"""Topics that no pattern matches.  Kafka: Topic.isInternal; the last is no topic to a client."""


class Topics(NamedTuple):
    """At most one of the three is set; with none of them all topics but internal ones are selected."""

    subscribed: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, frozenset[int]] = {}

    def choose(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those of *partitions* that are meant.  Raises UsageError for a name that is not among them."""
        found = list(partitions)
        self._hold_against(found)
        return [partition for partition in found if self.mean(partition.topic, partition.number)]

    def mean(self, topic: str | None, number: int | None) -> bool:
        """Whether a partition is selected; *topic* and *number* are None if the directory's name has none."""
        if self.assigned:
            return topic is not None and number in self.assigned.get(topic, ())
        if self.subscribed:
            return topic in self.subscribed
        if topic in KAFKAS_OWN:
            return False
        return self.pattern is None or (topic is not None and re.fullmatch(self.pattern, topic) is not None)

    def _hold_against(self, partitions: list[Partition]) -> None:
        known = {(partition.topic, partition.number) for partition in partitions}
        topics = {topic for topic, _ in known if topic is not None}
        for option, names in (("subscribe", self.subscribed), ("assign", tuple(self.assigned))):
            for name in names:
                if name not in topics:
                    raise UsageError(f"{option}: no topic {name} here{near_misses(name, topics)}")
        for topic, numbers in self.assigned.items():
            for number in sorted(numbers):
                if (topic, number) not in known:
                    raise UsageError(f"assign: no partition {number} of {topic} here")


def read_topics(subscribe: str | None, pattern: str | None, assign: str | None) -> Topics:
    """Parse the three options.  Raises UsageError for more than one, and for a malformed one."""
    given = {"subscribe": subscribe, "subscribePattern": pattern, "assign": assign}
    names = [name for name, text in given.items() if text is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)}: at most one of the three")
    if subscribe is not None:
        topics = tuple(dict.fromkeys(name.strip() for name in subscribe.split(",") if name.strip()))
        if not topics:
            raise UsageError("subscribe: no topic is given")
        return Topics(subscribed=topics)
    if pattern is not None:
        return Topics(pattern=_checked(pattern))
    return Topics() if assign is None else Topics(assigned=_assigned(assign))


def _checked(pattern: str) -> str:
    if not pattern:
        raise UsageError("subscribePattern: it is empty")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"subscribePattern: {pattern!r} is no regular expression: {error}") from error
    return pattern


def _assigned(text: str) -> dict[str, frozenset[int]]:
    shape = f'assign: expected JSON like {{"orders": [0, 1]}}, not {text[:60]!r}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(shape) from error
    if not isinstance(found, dict) or not found:
        raise UsageError(shape)
    for numbers in found.values():
        if not isinstance(numbers, list) or not numbers or not all(type(each) is int and each >= 0 for each in numbers):
            raise UsageError(shape)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
