"""The schemas of a registry as files in a new folder: `SUBJECT/VERSION.avsc`, and `index.json` with the list."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

from klog.commands.schemas.export_requests import escaped
from klog.commands.schemas.schema_rows import SchemaRow
from klog.commands.schemas.state_records import json_line
from klog.data_dir.disk.directory_tree import write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.whole_directory import whole_directory
from klog.schemas.schema_version import DELETED, LIVE

_ENDINGS: Final = {"AVRO": "avsc", "PROTOBUF": "proto", "JSON": "json"}
_LONGEST_NAME: Final = 200
INDEX: Final = "index.json"


def write_files(rows: Sequence[SchemaRow], to: str, disk: Disk) -> None:
    """Write the texts of *rows* to the new folder *to*, which appears when it is complete.

    Raises UsageError if something is there, OSError.
    """
    with whole_directory(to, disk, "the folder would be incomplete") as folder:
        index, written = [], dict[str, str]()
        for row in rows:
            name = _file_of(row)
            directory = os.path.join(folder, os.path.dirname(name))
            if directory not in written:
                disk.make_directory(directory)
                written[directory] = directory
            path = write_file(os.path.join(folder, name), [_text(row)], disk)
            written[path] = path
            index.append(row.json() | {"file": name})
        path = write_file(os.path.join(folder, INDEX), _lines(index), disk)
        disk.sync([*written, path, folder])


def _lines(index: Iterable[dict[str, Any]]) -> list[bytes]:
    return [b"[\n", b",\n".join(map(json_line, index)), b"\n]\n"]


def _text(row: SchemaRow) -> bytes:
    return row.version.text.encode("utf-8", "surrogatepass")


def _file_of(row: SchemaRow) -> str:
    """Return the path of a version in the folder; a name that the file system does not take is cut, with its hash."""
    one = row.version
    folder = escaped(one.subject)
    if set(folder) <= {"."}:
        folder = "%2E" * len(folder) or "%00"
    if len(folder) > _LONGEST_NAME:
        digest = sha256(one.subject.encode("utf-8", "surrogatepass")).hexdigest()
        folder = f"{folder[: _LONGEST_NAME - 33]}-{digest[:32]}"
    # Versions that no registry has any more may share the number of a later one.
    version = str(one.version) if one.state in (LIVE, DELETED) else f"{one.version}-{one.state}-{one.offset}"
    return f"{folder}/{version}.{_ENDINGS.get(one.type, 'txt')}"
