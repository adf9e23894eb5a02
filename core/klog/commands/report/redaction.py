"""Replaces the names on a disk, each always by the same word, in the rows of a report to give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_CLOSED = frozenset({"id", "severity", "clock", "kind", "state", "reason", "type", "codec", "meaning", "why"})
"""Members whose values klog has a list of."""

_NAMES = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transaction",
    "member_id": "member",
    "instance_id": "instance",
    "log_dir": "log-dir",
    "path": "log-dir",
    "topic_id": "topic-id",
    "cluster_id": "cluster",
}
"""Members that become a word with a number."""


_COUNTS = frozenset({"reasons", "counts", "totals"})
"""Members that are objects of numbers by klog's own words."""

_OBJECTS = frozenset({"coordinator"})
"""Members that are objects whose members klog has given their names."""


class Redaction:
    """Numbers the names of each kind in the order of their first use: `topic-1`, `topic-2`, …"""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def name(self, kind: str, name: str) -> str:
        """Return the word that replaces *name*; names of Kafka's own topics are kept."""
        if kind == "topic" and name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            return name
        known = self._numbers.setdefault(kind, {})
        return f"{kind}-{known.setdefault(name, len(known) + 1)}"

    def row(self, row: Mapping[str, object]) -> dict[str, object]:
        """Return *row*, a JSON object, with numbers, words and members of closed lists alone: no other text."""
        return {member: value for member, found in row.items() if (value := self._member(member, found)) is not None}

    def _member(self, member: str, value: object) -> object:
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, str):
            kind = _NAMES.get(member)
            return self.name(kind, value) if kind is not None else value if member in _CLOSED else None
        if isinstance(value, Mapping):
            return dict(value) if member in _COUNTS else self.row(value) if member in _OBJECTS else None
        if isinstance(value, Sequence):
            return [one for item in value if (one := self._item(member, item)) is not None]
        return None

    def _item(self, member: str, item: object) -> object:
        """Return an element of an array: an object, a number, or a pair of a topic and a number."""
        if isinstance(item, Sequence) and not isinstance(item, str) and len(item) == 2 and isinstance(item[0], str):
            return [self.name("topic", item[0]), self._member(member, item[1])]
        return self.row(item) if isinstance(item, Mapping) else self._member(member, item)
