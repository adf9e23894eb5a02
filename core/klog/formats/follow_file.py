"""`klog-follow.json`: the facts about a live cluster that a copy of its partitions keeps beside their logs.

    {"klog_follow": 1, "cluster_id": "fXeC61JOQie3q2pvw8VSPQ", "bootstrap": "broker:9092", "updated": "2026-11-23T…Z",
     "topics": {"orders": {"topic_id": "…", "partitions": 6, "config": {"cleanup.policy": "compact"},
                           "caught_up": {"0": 1795732241742}, "cleaned": {"0": 1841}}},
     "groups": {"billing": [{"topic": "orders", "partition": 0, "offset": 15, "leader_epoch": 2, "metadata": ""}]}}

The file marks a directory as a copy that `klog follow` may continue.  The file belongs to klog, but anybody may have
changed it: a value of another type than expected is a `Malformed`, and the whole file is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.formats.checkpoint import Malformed, decode
from klog.formats.java_integers import INT_MAX, LONG_MAX
from klog.formats.java_text import parse_uuid
from klog.formats.names import topic_is_legal

FOLLOW_FILE: Final = "klog-follow.json"
_VERSION: Final = 1
_MOST_LETTERS: Final = 1 << 16
_DIGITS: Final = 10


class FollowTopic(NamedTuple):
    """A topic of the cluster.

    *topic_id*: None if brokers give none.  *partitions*: how many it has.  *config*: the settings of the topic itself,
    as texts in Kafka's notation.  *caught_up*: by partition, the last time when its copy was known to be complete (ms);
    *cleaned*: the offset from which on the leader had removed deletions before they were copied.
    """

    topic_id: str | None
    partitions: int
    config: Mapping[str, str]
    caught_up: Mapping[int, int] = MappingProxyType({})
    cleaned: Mapping[int, int] = MappingProxyType({})


class GroupOffset(NamedTuple):
    """An offset that a consumer group has committed for a partition.  *leader_epoch*: -1 for none."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class FollowFile(NamedTuple):
    """The file's content.  *updated*: when it was written, ISO 8601 in UTC.  *groups*: by the group's id."""

    cluster_id: str
    bootstrap: str
    updated: str
    topics: Mapping[str, FollowTopic]
    groups: Mapping[str, Sequence[GroupOffset]]


def write_follow_file(content: FollowFile) -> bytes:
    """Return the bytes of the file."""
    import json

    found = {
        "klog_follow": _VERSION,
        "cluster_id": content.cluster_id,
        "bootstrap": content.bootstrap,
        "updated": content.updated,
        "topics": {name: _topic_json(one) for name, one in content.topics.items()},
        "groups": {group: [one._asdict() for one in offsets] for group, offsets in content.groups.items()},
    }
    return f"{json.dumps(found, indent=1)}\n".encode()


def _topic_json(topic: FollowTopic) -> dict[str, object]:
    found = {"topic_id": topic.topic_id, "partitions": topic.partitions, "config": dict(topic.config)}
    numbers = {"caught_up": dict(sorted(topic.caught_up.items())), "cleaned": dict(sorted(topic.cleaned.items()))}
    return found | {name: by_partition for name, by_partition in numbers.items() if by_partition}


def read_follow_file(content: bytes) -> FollowFile | Malformed:
    """Read the file; the reason names the member with a wrong type."""
    import json

    text = decode(content)
    if isinstance(text, Malformed):
        return text
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return Malformed(error.lineno, f"no JSON: {error.msg}")
    except (ValueError, RecursionError):
        return Malformed(0, "no JSON that can be read")
    try:
        return _content(found)
    except _WrongError as error:
        return Malformed(0, str(error))


class _WrongError(Exception):
    """A member is missing, or of the wrong kind."""


def _content(found: object) -> FollowFile:
    members = _object(found, "the file")
    version = members.get("klog_follow")
    if version != _VERSION or isinstance(version, bool):
        raise _WrongError(f"klog_follow is {_shown(version)}, expected {_VERSION}")
    texts = [_text(members.get(name), name) for name in ("cluster_id", "bootstrap", "updated")]
    topics = {name: _topic(name, one) for name, one in _object(members.get("topics"), "topics").items()}
    groups = {group: _offsets(group, one) for group, one in _object(members.get("groups"), "groups").items()}
    return FollowFile(texts[0], texts[1], texts[2], topics, groups)


def _topic(name: str, found: object) -> FollowTopic:
    if not topic_is_legal(name):
        raise _WrongError(f"{_shown(name)} is no name of a topic")
    where = f"topics.{name}"
    members = _object(found, where)
    topic_id = members.get("topic_id")
    if topic_id is not None and (not isinstance(topic_id, str) or parse_uuid(topic_id) is None):
        raise _WrongError(f"{where}.topic_id is {_shown(topic_id)}")
    config = _object(members.get("config"), f"{where}.config")
    settings = {_text(key, where): _text(value, f"{where}.config.{_shown(key)}") for key, value in config.items()}
    partitions = _number(members.get("partitions"), f"{where}.partitions", 0, INT_MAX)
    caught_up, cleaned = (_by_partition(members.get(one, {}), f"{where}.{one}") for one in ("caught_up", "cleaned"))
    return FollowTopic(topic_id, partitions, settings, caught_up, cleaned)


def _by_partition(found: object, where: str) -> dict[int, int]:
    members = _object(found, where)
    wrong = next((one for one in members if not (one.isascii() and one.isdecimal() and len(one) <= _DIGITS)), None)
    if wrong is not None:
        raise _WrongError(f"{where}.{_shown(wrong)} is no partition")
    return {int(one): _number(value, f"{where}.{one}", 0, LONG_MAX) for one, value in members.items()}


def is_setting(topic: str, name: str, value: str) -> bool:
    """Whether the file may contain this setting of *name* on a topic; readers rely on it."""
    return _is_right(lambda: _topic(topic, {"partitions": 0, "config": {name: value}}))


def is_committed(group: str, offset: GroupOffset) -> bool:
    """Whether the file may contain this committed offset of a group; readers rely on it."""
    return _is_right(lambda: _offsets(group, [offset._asdict()]))


def _is_right(read: Callable[[], object]) -> bool:
    try:
        read()
    except _WrongError:
        return False
    return True


def _offsets(group: str, found: object) -> tuple[GroupOffset, ...]:
    where = f"groups.{_shown(_text(group, 'groups'))}"
    if not isinstance(found, list):
        raise _WrongError(f"{where} is no list")
    return tuple(_offset(where, _object(one, where)) for one in found)


def _offset(where: str, members: Mapping[str, object]) -> GroupOffset:
    topic = _text(members.get("topic"), f"{where}.topic")
    if not topic_is_legal(topic):
        raise _WrongError(f"{where}.topic is {_shown(topic)}")
    return GroupOffset(
        topic,
        _number(members.get("partition"), f"{where}.partition", 0, INT_MAX),
        _number(members.get("offset"), f"{where}.offset", 0, LONG_MAX),
        _number(members.get("leader_epoch", -1), f"{where}.leader_epoch", -1, INT_MAX),
        _text(members.get("metadata", ""), f"{where}.metadata"),
    )


def _object(found: object, where: str) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise _WrongError(f"{where} is no object")
    return found


def _text(found: object, where: str) -> str:
    if not isinstance(found, str) or len(found) > _MOST_LETTERS or not _is_unicode(found):
        raise _WrongError(f"{where} is {_shown(found)}, expected a text")
    return found


def _is_unicode(text: str) -> bool:
    """Whether there is no half of a surrogate pair in *text*, which JSON allows and UTF-8 does not."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _number(found: object, where: str, least: int, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise _WrongError(f"{where} is {_shown(found)}, expected a number from {least} to {most}")
    return found


def _shown(value: object) -> str:
    """Return a value as JSON, at most 60 letters of it."""
    import json

    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else f"{text[:57]}…"
