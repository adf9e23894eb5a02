"""The bytes of damage, as `klog bytes` shows them, for the page of `klog report`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import Final

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_view import ByteChoice, view_file
from klog.commands.report.page_sections import DamagedBytes
from klog.formats.names import parse_file
from klog.partition.verify.findings import Finding, Severity
from klog.partition.verify.log_checks import IDS

from klog_cli import output, style
from klog_cli.views.bytes import see_bytes
from klog_cli.views.bytes.hex_text import text_lines
from klog_cli.views.finding_lines import file_of

_MOST: Final = 100
"""Places whose bytes are on the page."""
_MOST_LINES: Final = 80
_COLUMNS: Final = 1 << 16


def damaged_bytes(found: Iterable[tuple[str, Finding]]) -> list[DamagedBytes]:
    """Return the bytes at the positions of the damage in *found*: findings, each with the path of its partition."""
    damaged = ((file_of(path, one), one) for path, one in found if one.severity is Severity.DAMAGE)
    places = {(file, one.position, one.id): one for file, one in damaged if one.position is not None}
    shown = (_bytes(file, position, one) for (file, position, _), one in islice(places.items(), _MOST))
    return [one for one in shown if one.lines]


def _bytes(file: str, position: int, found: Finding) -> DamagedBytes:
    folder = os.path.basename(os.path.dirname(os.path.abspath(file)))
    title = f"{folder}/{os.path.basename(file)} @ {position}"
    command = style.without_marks(see_bytes(file, position=position))
    return DamagedBytes(found.id, title, _lines(file, position, found), command)


def _lines(file: str, position: int, found: Finding) -> list[str]:
    """Return the lines of the fields at *position*; none if there is nothing to see: the file has become shorter."""
    faults = {} if found.id in IDS.values() else {position: f"{found.message} ({found.id})"}
    try:
        with ReadOnlyFile(file) as source:
            if not position < source.size:
                return []
            view = view_file(source, parse_file(os.path.basename(file)), ByteChoice(position, faults=faults))
            lines = text_lines(view, view.fields(), None, is_full=False, width=_COLUMNS)
            shown = [output.printable(style.without_marks(line)) for line in islice(lines, _MOST_LINES)]
            return [*shown, *["…"] * (len(shown) == _MOST_LINES)]
    except KlogError as error:
        return [output.printable(str(error))]
