"""The types of record that the keys and values of a topic have: which schemas they name, and how often.

    used = UsedTypes(decoders, "orders", ("key", "value"))
    used.add(window)                        # for each window of the topic
    plans = side_plans("orders", used.found(), registries)

The first five bytes are nearly always enough; they are counted by Arrow, not one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from klog.log.arrow import Arrays, Sizes, import_pyarrow
from klog.schemas.decoded import Decoder
from klog.schemas.reader_schemas import LATEST, PROTOBUF, UsedType, latest_members, members_of, named_schema
from klog.schemas.registry import Registry
from klog.schemas.side_decoder import Candidates, SchemaDecoders
from klog.schemas.typed_columns import SidePlan, content_of

if TYPE_CHECKING:
    from klog.kernel import Window

_FRAME: Final = 5
_INDEXES: Final = 700
"""Bytes behind the id that the message indexes of Protobuf can have."""
SIDES: Final = ("key", "value")


class UsedTypes:
    """Counts the types of one topic.  *counts*: by side; *framed*: the sides that name schemas, known or not.

    *ids*: of the schemas that are known.
    """

    def __init__(self, decoders: SchemaDecoders, topic: str, sides: Sequence[str] = SIDES) -> None:
        self.counts: dict[str, Counter[UsedType]] = {side: Counter() for side in sides}
        self.framed: set[str] = set()
        self.ids: set[int] = set()
        self._decoders, self._topic = decoders, topic
        self._sides = {side: decoders.side(topic, side) for side in sides}
        self._candidates: dict[tuple[str, bytes], Candidates] = {}
        self._arrays = Arrays()

    def found(self) -> dict[str, Counter[UsedType] | None]:
        """Return the counts by side; None for a side that names no schema."""
        return {side: counts if side in self.framed else None for side, counts in self.counts.items()}

    def add(self, rows: Window) -> None:
        """Count the keys and values of *rows*."""
        sizes = Sizes(*rows.content_sizes())
        for side in self.counts:
            if sizes.headers:
                for row in range(rows.records):
                    record = rows.record(row)
                    self._decode(side, content_of(record, side), record[4] or ())
            else:
                self._add_column(side, rows, sizes)

    def _add_column(self, side: str, rows: Window, sizes: Sizes) -> None:
        import pyarrow.compute as pc

        pa = import_pyarrow()
        contents = self._arrays.array(rows, sizes, pa.field(side, pa.binary()))
        heads: dict[bytes, int] = {
            one["values"]: one["counts"] for one in pc.value_counts(pc.binary_slice(contents, 0, _FRAME)).to_pylist()
        }
        singly = {head for head, count in heads.items() if head and not self._add_head(side, head, count)}
        for content in contents.to_pylist() if singly else ():
            if content is not None and content[:_FRAME] in singly:
                self._add_content(side, content)

    def _add_head(self, side: str, head: bytes, count: int) -> bool:
        """Count keys or values that begin with *head*; False if their other bytes decide."""
        if head[0] > 1 or len(head) < _FRAME:
            return True
        if head[0] == 1:
            return False
        schema_id = int.from_bytes(head[1:], "big", signed=True)
        if schema_id <= 0 and not self._decoders.is_known(schema_id):
            return True
        self.framed.add(side)
        found = self._decoders.candidates(schema_id, self._topic, side)
        self.ids.update(row.id for row, _ in found)
        if len(found) > 1 or (found and found[0][0].type == PROTOBUF):
            self._candidates[side, head] = found
            return False
        for row, _ in found:
            self.counts[side][UsedType(row, None)] += count
        return True

    def _add_content(self, side: str, content: bytes) -> None:
        found = self._candidates.get((side, content[:_FRAME]), [])
        if len(found) != 1:
            self._decode(side, content, ())
            return
        row, decoder = found[0]
        message = _message(decoder, content[_FRAME : _FRAME + _INDEXES])
        if message is not None:
            self.counts[side][UsedType(row, message)] += 1

    def _decode(self, side: str, content: bytes | None, headers: Any) -> None:
        found = self._sides[side].decode(content, headers)
        if found is None:
            return
        self.framed.add(side)
        if found.row is not None:
            self.ids.add(found.row.id)
        if found.row is not None and found.decoded.error is None:
            self.counts[side][UsedType(found.row, found.decoded.message)] += 1


def _message(decoder: Decoder | None, begin: bytes) -> str | None:
    from klog.schemas.protobuf import ProtobufSchema

    return decoder.message_of(begin) if isinstance(decoder, ProtobufSchema) else None


def side_plans(
    topic: str,
    used: Mapping[str, Mapping[UsedType, int] | None],
    registries: Sequence[Registry],
    reader: str = LATEST,
    context: str | None = None,
) -> list[SidePlan]:
    """Return the typed columns of a topic; *used*: by side, None for one that names no schema, which stays as it is.

    *reader*: `latest`, or the schema that reads the values, or the keys if there are only those; *context*: the one to
    prefer for it.  Raises UsageError.
    """
    plans = []
    for side, counts in used.items():
        if counts is None:
            continue
        if reader == LATEST or (side == "key" and len(used) > 1):
            members = latest_members(counts, registries)
        else:
            members = members_of(named_schema(reader, registries, context), counts, registries)
        plans.append(SidePlan(topic, side, members))
    return plans
