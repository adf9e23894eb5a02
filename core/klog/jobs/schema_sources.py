"""The registries whose topics are below some paths: `_schemas`, Apicurio's journal, or a file of `_schemas` records.

for registry in find_registries(["data"]):
    print(registry.kind, len(registry.rows))
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final

from klog.base.errors import NotKafkaError, UnreadableError
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import IdentityChoice, choose_identity, find_partitions
from klog.partition.start.replica_choice import choose_replicas
from klog.schemas.apicurio import JOURNAL_TOPIC, read_journal
from klog.schemas.registry import Registry
from klog.schemas.schemas_topic import SCHEMAS_TOPIC, SchemasReplay, read_schemas_topic

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
    files = [path for path in paths if os.path.isfile(path) and not path.endswith(_LOG_SUFFIX)]
    every = find_partitions(path for path in paths if path not in files)
    wanted = [one for one in every if one.topic in (topic, JOURNAL_TOPIC) and one.number == 0]
    kept, sentence = choose_identity(wanted, choice)
    if sentence is not None:
        note(sentence)
    found = [*map(read_records_file, files), *map(_read, choose_replicas(kept, "longest", choice))]
    if not found:
        places = ", ".join(paths)
        raise NoRegistryError(f"{places}: no {topic} and no {JOURNAL_TOPIC}; name the log dir that has it")
    return found


def topics_beside(paths: Sequence[str], topic: str = SCHEMAS_TOPIC) -> list[str]:
    """Return the directories of registries' topics in the log dirs that *paths* are, or are in."""
    found: dict[str, None] = {}
    for path in paths:
        around = os.path.abspath(path) if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
        for log_dir in (around, os.path.dirname(around)):
            for name in (f"{topic}-0", f"{JOURNAL_TOPIC}-0"):
                directory = os.path.join(path if log_dir == os.path.abspath(path) else log_dir, name)
                if os.path.isdir(directory):
                    found[directory] = None
    return list(found)


def _read(partition: Partition) -> Registry:
    return read_journal(partition) if partition.topic == JOURNAL_TOPIC else read_schemas_topic(partition)


def read_records_file(path: str) -> Registry:
    """Return the state after the records in a file of JSON lines, as `klog dump` prints those of `_schemas`.

    A line that is no such record is a bad record; its number takes the place of the offset.
    """
    replay = SchemasReplay()
    try:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines):
                _take_line(replay, number, line)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    return replay.registry(path)


def _take_line(replay: SchemasReplay, number: int, line: bytes) -> None:
    try:
        record = json.loads(line)
        offset, timestamp = record.get("offset", number), record.get("timestamp", -1)
        key, value = (_side(record, name) for name in ("key", "value"))
    except (ValueError, AttributeError, TypeError, RecursionError):
        offset, timestamp, key, value = number, -1, None, None
    replay.take(offset, timestamp, key, value)


def _side(record: dict[str, str | None], name: str) -> bytes | None:
    encoded = record.get(f"{name}_base64")
    if encoded is not None:
        return b64decode(encoded)
    text = record.get(name)
    return None if text is None else text.encode()
