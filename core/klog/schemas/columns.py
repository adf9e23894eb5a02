"""Columns of decoded keys and values: the Arrow type of a schema, and values that Arrow takes for it.

A type inside of itself has no column: there the value is text, in klog's plain JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klog.log.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

Change = Callable[[Any], Any]
MOST_COLUMNS: Final = 4000
"""Columns of one key or value.  A schema with more is text, in JSON: each one costs a writer of Parquet memory."""
EMPTY: Final = "_empty"
"""The member of a struct without others, always null: Parquet has no struct without members."""


class TooManyColumnsError(Exception):
    """A schema has more than MOST_COLUMNS."""


class Column(NamedTuple):
    """The *type* of a column, and the *change* that makes its values of raw ones; None: they stay as they are."""

    type: pa.DataType
    change: Change | None = None


CANNOT_HOLD: Final = (ArithmeticError, ValueError, TypeError)
"""Exceptions of Arrow for a value that a column cannot hold; its own are ValueErrors and TypeErrors."""


def fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value in which the parts that a column of this type cannot hold are null."""
    pa = import_pyarrow()
    try:
        pa.array([value], kind)
    except CANNOT_HOLD:
        pass
    else:
        return value
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {name: fitting(one, kind.field(name).type) for name, one in value.items()}
    if pa.types.is_map(kind):
        return [(name, fitting(one, kind.item_type)) for name, one in value]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fitting(one, kind.value_type) for one in value]
    return None


def field_name(name: str) -> str:
    """Return a name as a column can have it: half of a surrogate pair has no UTF-8."""
    return name.encode("utf-8", "replace").decode()


def enum_type(for_spark: bool) -> pa.DataType:
    """Return the type of an enum's symbols; Spark has no dictionaries."""
    pa = import_pyarrow()
    return pa.string() if for_spark else pa.dictionary(pa.int32(), pa.string())


def struct_type(members: list[tuple[str, pa.DataType]]) -> pa.DataType:
    """Return a struct, with a member that is always null if there is none."""
    pa = import_pyarrow()
    return pa.struct([(field_name(name), kind) for name, kind in members] or [(EMPTY, pa.null())])
