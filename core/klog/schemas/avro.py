"""Avro: values in their binary encoding, by the schema that wrote them.

    schema = AvroSchema('{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}', {})
    print(schema.decode(b"\\x0e").value)

fastavro reads, at the speed of C.  It takes some bytes that no writer writes for values, so whatever it refuses, and
whatever could be one of those, is read again by `AvroReader`, which decides.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from klog.schemas.avro_plan import END, TOGETHER, AvroPlan, Change
from klog.schemas.avro_reader import MOST_DEPTH, AvroReader
from klog.schemas.avro_resolution import ReaderForm
from klog.schemas.avro_types import AvroType, all_types, can_explode, is_recursive, parse_avro
from klog.schemas.decoded import BAD_VALUE, BadValueError, Decoded
from klog.schemas.json_values import json_bytes

_CONTINUED: Final = bytes(byte >> 7 for byte in range(256))
_LONG_RUN: Final = bytes([1]) * 9
"""Nine bytes with their highest bit set: a number of more than 64 bits may begin there, which fastavro cuts off."""
_new = tuple.__new__  # a third faster than the constructor of a named tuple
_FRAMES = 10_000
"""Frames of Python for the deepest value: they take no stack of C."""
_DEEPER = threading.Lock()


class AvroSchema:
    """A schema, and a decoder of its values in one form: see `decoded.MakeDecoder`.

    *reader*: the schema that reads the values, and their form; None: this one, in the form that *canonical* says.
    """

    def __init__(
        self, text: str, references: Mapping[str, str], canonical: bool = False, reader: ReaderForm | None = None
    ) -> None:
        self.type: AvroType = parse_avro(text, references)
        self._is_recursive = is_recursive(self.type)
        self._canonical, self._reader = canonical, reader
        self._plan: AvroPlan | None = None
        self._change: Change | None = None
        self._most_bytes = -1

    @property
    def name(self) -> str | None:
        """The full name of the schema, or None for one without a name."""
        return self.type.name or None

    def decode(self, payload: bytes | memoryview) -> Decoded:
        """Decode the bytes behind the framing; content raises nothing."""
        plan = self._plan or self._prepare()
        if len(payload) <= self._most_bytes:
            content = bytes(payload)
            if _LONG_RUN not in content.translate(_CONTINUED):
                source = BytesIO(content)
                try:
                    value = plan.read(source, plan.schema)
                    if plan.is_wrapped:
                        value = value[""]
                    change = self._change
                    if change is not None:
                        value = change(value)
                    return _new(Decoded, (value, None, None, source.tell() < len(content)))
                except Exception:
                    pass  # it raises whatever its code runs into: an index, a key, an end of file
        if self.type.kind == "bytes":  # Java writes the bytes of such a schema without their length
            return self._changed(bytes(payload))
        return self._decode_strictly(bytes(payload))

    def json_texts(self, payloads: list[bytes]) -> list[bytes | None]:
        """Return the JSON of each value; None for one that `decode` has to judge."""
        plan = self._plan or self._prepare()
        if self._most_bytes < sys.maxsize:  # in a row they could be nested as deep as all of them together
            return [self._json_text(payload) for payload in payloads]
        texts: list[bytes | None] = []
        for first in range(0, len(payloads), TOGETHER):
            some = payloads[first : first + TOGETHER]
            values = self._read_together(plan, some)
            texts += map(self._json_text, some) if values is None else map(json_bytes, values)
        return texts

    def _json_text(self, payload: bytes) -> bytes | None:
        found = self.decode(payload)
        return None if found.error is not None or found.trailing else json_bytes(found.value)

    def _read_together(self, plan: AvroPlan, contents: list[bytes]) -> list[Any] | None:
        """Return the values of *contents*, read by one call of fastavro; None unless each is whole and nothing is left.

        END is behind each content, nowhere else, and cannot overlap itself.  Whoever finds it as often has read each
        value to its end, and not a byte further.
        """
        source = END.join([bytes([2 * len(contents)]) + contents[0], *contents[1:], b"\0"])
        if source.count(END) != len(contents) or _LONG_RUN in source.translate(_CONTINUED):
            return None
        try:
            pairs = plan.read(BytesIO(source), plan.several)
            values = [pair["value"] for pair in pairs if pair["end"] == END]
            if len(values) < len(contents):
                return None
            return values if self._change is None else [*map(self._change, values)]
        except Exception:
            return None  # see `decode`

    def _prepare(self) -> AvroPlan:
        """Plan how values are read, for the first of them: most schemas of a registry never meet one."""
        if self._reader is None:
            plan = AvroPlan(self.type, self._canonical)
            self._change = plan.change
        else:
            plan = AvroPlan(self.type, canonical=False, tagged=True)
            self._change = self._reader.change_from(plan)
        types = all_types(self.type)
        if self.type.kind != "bytes" and not can_explode(types):
            levels = max(one.levels for one in types)
            # each level of nesting takes a byte, but for records directly in records
            self._most_bytes = (MOST_DEPTH - levels) // (levels + 1) if self._is_recursive else sys.maxsize
        self._plan = plan
        return plan

    def _changed(self, value: Any, trailing: bool = False) -> Decoded:
        """Return a raw value in the form that is wanted."""
        try:
            return Decoded(value if self._change is None else self._change(value), None, None, trailing)
        except BadValueError as error:
            return Decoded(None, None, error.code)

    def _decode_strictly(self, content: bytes) -> Decoded:
        try:
            return self._strict_value(content)
        except RecursionError:
            pass
        with _DEEPER:
            usual = sys.getrecursionlimit()
            sys.setrecursionlimit(usual + _FRAMES)
            try:
                return self._strict_value(content)
            except RecursionError:
                return Decoded(None, None, BAD_VALUE)
            finally:
                sys.setrecursionlimit(usual)

    def _strict_value(self, content: bytes) -> Decoded:
        plan = self._plan or self._prepare()
        reader = AvroReader(content, plan)
        try:
            value = reader.read(self.type)
        except BadValueError as error:
            return Decoded(None, None, error.code)
        return self._changed(value, reader.position < len(content))
