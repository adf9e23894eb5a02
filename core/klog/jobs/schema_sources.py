"""The registries whose topics are below some paths: `_schemas`, Apicurio's journal, or a file of `_schemas` records.

for registry in find_registries(["data"]):
    print(registry.kind, len(registry.rows))
"""

from __future__ import annotations

import glob
import json
import os
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from klog.base.errors import KlogError, NotKafkaError, UnreadableError
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, choose_identity
from klog.data_dir.replicas import find_partitions
from klog.formats.batch import CONTROL_BIT
from klog.formats.damage import Damage
from klog.log.segment import Segment
from klog.partition.start.replica_choice import choose_replicas
from klog.schemas.apicurio import JOURNAL_TOPIC, read_journal
from klog.schemas.reader_schemas import EACH
from klog.schemas.registry import Registry
from klog.schemas.schemas_topic import SCHEMAS_TOPIC, SchemasReplay, read_schemas_topic
from klog.schemas.side_decoder import SchemaDecoders

if TYPE_CHECKING:
    from klog.schemas.side_decoder import SchemaDecoders

_LOG_SUFFIX: Final = ".log"


class NoRegistryError(NotKafkaError):
    """None of the paths has the topic of a registry."""


def find_registries(
    paths: Sequence[str],
    topic: str = SCHEMAS_TOPIC,
    choice: IdentityChoice = IdentityChoice(),  # noqa: B008
    note: Callable[[str], object] = len,
) -> list[Registry]:
    """Return the state of each registry whose topic is below *paths*; *topic*: the name of `_schemas` there.

    *note*: receives the sentence about copies that *choice* leaves out.  The copy that is ahead is read.  Raises
    NoRegistryError, IdentityError for topics of two clusters, UsageError, UnreadableError, BrokenJournalError.
    """
    files = [path for path in paths if os.path.isfile(path)]
    every = find_partitions(path for path in paths if path not in files)
    wanted = [one for one in every if one.topic in (topic, JOURNAL_TOPIC, None) and not one.number]
    kept, sentence = choose_identity(wanted, choice)
    if sentence is not None:
        note(sentence)
    found = [*map(read_records_file, files), *map(_read, choose_replicas(kept, "longest", choice))]
    if not found:
        places = ", ".join(paths)
        raise NoRegistryError(f"{places}: no {topic} and no {JOURNAL_TOPIC}; name the log dir that has it")
    return found


def open_schemas(
    paths: Sequence[str], *, canonical: bool = False, reader: str = EACH, context: str | None = None
) -> SchemaDecoders:
    """Return decoders of the keys and values of topics, by the schemas whose topics are below *paths*.

    *canonical*: in the form of the formats' own tools.  *reader*: the schema that Avro values are resolved to: `each`
    its own, `latest`, an id or SUBJECT:VERSION.  *context*: the one to prefer.  Raises as `find_registries` does.
    """
    registries = find_registries(paths)
    make = None
    if reader != EACH:
        from klog.schemas.resolved_values import resolving

        make = resolving(registries, reader, canonical, context)
    return SchemaDecoders(registries, canonical, context, make)


def topics_beside(paths: Sequence[str], topic: str = SCHEMAS_TOPIC) -> list[str]:
    """Return the directories of registries' topics in the log dirs that *paths* are, or are in."""
    found: dict[str, None] = {}
    for path in (match for given in paths for match in _matches(given)):
        around = os.path.abspath(path) if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        for log_dir in (around, os.path.dirname(around)):
            for name in (f"{topic}-0", f"{JOURNAL_TOPIC}-0"):
                directory = os.path.join(path if log_dir == os.path.abspath(path) else log_dir, name)
                if os.path.isdir(directory):
                    found[directory] = None
    return list(found)


def _matches(path: str) -> list[str]:
    return glob.glob(path) if glob.has_magic(path) and not os.path.lexists(path) else [path]


def _read(partition: Partition) -> Registry:
    if partition.topic == JOURNAL_TOPIC:
        return read_journal(partition)
    found = read_schemas_topic(partition)
    return found if partition.topic is not None else _checked(found)


def _checked(found: Registry) -> Registry:
    """Return a registry whose place has another name than its topic.  Raises NoRegistryError if no record is one's."""
    if found.records and found.records == len(found.bad_records):
        raise NoRegistryError(f"{found.path}: no record is one of a registry's topic; name the log dir that has it")
    return found


class RegistryWatch:
    """Reads the topics of registries again when a broker has appended to them: records name new schemas at once."""

    def __init__(self, decoders: SchemaDecoders) -> None:
        self._decoders = decoders
        self._seen: list[list[tuple[str, int, int]]] | None = None  # they may have grown since they were read

    @staticmethod
    def _stamps(decoders: SchemaDecoders) -> list[list[tuple[str, int, int]]]:
        """Return names, sizes and times of the logs of each topic; a file of records does not change."""
        stamps = []
        for one in decoders.registries:
            with suppress(OSError), os.scandir(one.path) as entries:
                logs = [entry for entry in entries if entry.name.endswith(_LOG_SUFFIX)]
                stamps.append(sorted((log.name, log.stat().st_size, log.stat().st_mtime_ns) for log in logs))
        return stamps

    def refresh(self) -> None:
        """Let the decoders have the present state of their registries; one that cannot be read stays as it was."""
        stamps = self._stamps(self._decoders)
        if stamps == self._seen:
            return
        self._seen = stamps
        self._decoders.registries = [_reread(one) for one in self._decoders.registries]


def _reread(registry: Registry) -> Registry:
    try:
        return registry if os.path.isfile(registry.path) else _read(Partition(registry.path))
    except KlogError:
        return registry


StoredLine = tuple[int, int, "bytes | None", "bytes | None", tuple[tuple[bytes, "bytes | None"], ...]]
"""A record: its offset, its timestamp (ms), its key, its value and its headers."""


def read_records_file(path: str) -> Registry:
    """Return the state after the records in a file: a log, or JSON lines, as `klog dump` prints those of `_schemas`.

    A line that is no such record is a bad record; its number takes the place of the offset.  Raises NoRegistryError if
    no line is one: the file is another one.
    """
    replay, notes = SchemasReplay(), list[str]()
    for offset, timestamp, key, value, headers in stored_lines(path, notes.append):
        replay.take(offset, timestamp, key, value)
        replay.take_headers(headers)
    found = _checked(replay.registry(path))
    found.notes = notes
    return found


def stored_lines(path: str, note: Callable[[str], object] = len) -> Iterator[StoredLine]:
    """Yield the records in a file of JSON lines, or in a log under any name.

    Key and value of a line that is no record are None.  *note*: receives a sentence about each unreadable part of a
    log.  Raises UnreadableError.
    """
    try:
        with open(path, "rb") as lines:
            is_log = lines.read(1) == b"\0"  # the highest byte of an offset
            lines.seek(0)
            if not is_log:
                yield from (_stored(number, line) for number, line in enumerate(lines))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    for rows in Segment(path, bounded=False).record_windows() if is_log else ():
        if isinstance(rows, Damage):
            note(str(rows))
            continue
        for i in range(rows.records):
            offset, timestamp, key, value, headers, _, batch = rows.record(i)
            if not rows.batch(batch).attributes & CONTROL_BIT:
                yield offset, timestamp, key, value, headers or ()


def _stored(number: int, line: bytes) -> StoredLine:
    try:
        record = json.loads(line)
        offset, timestamp = record.get("offset", number), record.get("timestamp", -1)
        headers = tuple((_bytes(name) or b"", _bytes(value)) for name, value in record.get("headers") or ())
        return int(offset), int(timestamp), _side(record, "key"), _side(record, "value"), headers
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return number, -1, None, None, ()


def _side(record: dict[str, str | None], name: str) -> bytes | None:
    encoded = record.get(f"{name}_base64")
    return b64decode(encoded) if encoded is not None else _bytes(record.get(name))


def _bytes(content: str | dict[str, str] | None) -> bytes | None:
    """Return the bytes of a text, or of an object with their base64."""
    if isinstance(content, dict):
        return b64decode(content["base64"])
    return None if content is None else content.encode()
