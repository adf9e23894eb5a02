"""`klog fetch`: one fetch, and its answer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.commands.serve.serve_options import End, ServeOptions
from klog.commands.serve.served_partition import PartitionView
from klog.commands.serve.view import View
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionChoice, select_one
from klog.formats.damage import Damage
from klog.formats.error_codes import ErrorCode
from klog.log.segment import Segment
from klog.partition.fetch import FetchListing, FetchResult, OpenFiles, list_batches

from klog_cli import output
from klog_cli.style import bad, strong, warning

if TYPE_CHECKING:
    from klog.partition.tiered.tiered_log import TieredLog


class FetchArguments(NamedTuple):
    """The fetch: *isolation* is a consumer's, or `log_end`; *min_bytes* is the size for which a broker would wait."""

    offset: int
    max_bytes: int
    min_bytes: int
    isolation: str
    partial: bool
    end: End


def fetch(
    path: str,
    topics: Sequence[str],
    numbers: Sequence[PartitionChoice],
    wanted: FetchArguments,
    form: str,
    tiered: Mapping[str, TieredLog] | None = None,
) -> int:
    """Fetch from the partition at *path* and show the answer; return the exit code.

    *tiered*: the log over two tiers, by its directory.
    """
    partition = _one(path, topics, numbers)
    options = ServeOptions(end=wanted.end, open_transactions="hide", damaged="serve", internal=True)
    with View([partition], options, tiered) as view:
        seen = view.whole(partition)
        fetched = seen.fetch(
            wanted.offset,
            wanted.max_bytes,
            isolation="read_committed" if wanted.isolation == "read_committed" else "read_uncommitted",
            partial=wanted.partial,
            to_log_end=wanted.isolation == "log_end",
        )
        held = list_batches(OpenFiles(), fetched)
        messages = view.take_messages()
    told = _told(tiered)
    if form == "json":
        output.emit_json(_document(partition, wanted, fetched, held))
    else:
        _show(partition, wanted, fetched, held, seen)
    if tiered is None and _is_outside(fetched):
        _tell_remote(partition, wanted.offset)
    for line in messages:
        if line not in told:
            output.note(line)
    if not fetched.error and fetched.size < wanted.min_bytes:
        output.note(f"fewer than {wanted.min_bytes} bytes: a broker gives this answer after fetch.max.wait.ms")
    damages = _damages(fetched)
    for damage in damages:
        output.error(f"sent as it is: {damage}")
    return ExitCode.PROBLEMS_LEFT if fetched.error or damages else ExitCode.CLEAN


def _told(tiered: Mapping[str, TieredLog] | None) -> set[str]:
    """Return the lines about holes that precede the answer."""
    if not tiered:
        return set()
    from klog.partition.tiered.mounts import gaps

    return set(gaps(tiered))


def _tell_remote(partition: Partition, offset: int) -> None:
    from klog.partition.tiered.below_local import below_local_log

    if (below := below_local_log(partition, offset)) is not None:
        output.error(f"{partition.path}: {below}")


def _one(path: str, topics: Sequence[str], numbers: Sequence[PartitionChoice]) -> Partition:
    """Return the selected partition.  Raises UsageError if there is none, or several."""
    found = select_one(path, topics, numbers)
    if isinstance(found, KafkaFile):
        raise UsageError(f"{path}: a fetch reads a complete log: name the partition's directory")
    return found


def _damages(fetched: FetchResult) -> list[Damage]:
    """Return the first damage in the whole batches that are returned."""
    for piece in fetched.pieces:
        end = piece.position + piece.size
        for found in Segment(piece.path).batches(piece.position, resync=False):
            at = (found.place.position or 0) if isinstance(found, Damage) else found.position
            if at >= end:
                break
            if isinstance(found, Damage):
                return [found] if at + (found.size or 0) <= end else []
    return []


def _document(partition: Partition, wanted: FetchArguments, fetched: FetchResult, held: FetchListing) -> object:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "offset": wanted.offset,
        "error": int(fetched.error),
        "high_watermark": fetched.high_watermark,
        "last_stable_offset": fetched.last_stable_offset,
        "log_start_offset": fetched.log_start_offset,
        "bytes": fetched.size,
        "batches": [batch._asdict() for batch in held.batches],
        "partial": None if held.partial is None else held.partial._asdict(),
        "aborted": [txn._asdict() for txn in fetched.aborted],
    }


def _is_outside(fetched: FetchResult) -> bool:
    return fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE


def _place(offset: int, seen: PartitionView) -> str:
    if offset < seen.log_start_offset:
        return "below the log's start"
    return "beyond the log's end" if offset > seen.high_watermark else "in no segment"


def _show(
    partition: Partition, wanted: FetchArguments, fetched: FetchResult, held: FetchListing, seen: PartitionView
) -> None:
    head = f"{strong(partition.directory)} from offset {wanted.offset}, at most {output.human_size(wanted.max_bytes)}"
    ends = f"log start {seen.log_start_offset}, high watermark {seen.high_watermark}"
    if fetched.error:
        why = f": {wanted.offset} is {_place(wanted.offset, seen)}" if _is_outside(fetched) else ""
        output.lines([f"{head}: {bad(f'{fetched.error.name} ({int(fetched.error)})')}{why}", ends])
        return
    ends += f", last stable offset {fetched.last_stable_offset}"
    file = "".join(f" of {os.path.basename(piece.path)}" for piece in fetched.pieces)
    rows = [(output.range_text(one.base_offset, one.last_offset), one.position, one.size) for one in held.batches]
    columns = ("offsets", "position", "bytes") if rows else ()
    output.emit_table((f"{head}: {strong(output.human_size(fetched.size))}{file}", ends), columns, rows)
    if held.partial is not None:
        which = "" if held.partial.base_offset is None else f", which begins at offset {held.partial.base_offset}"
        part = output.human_size(held.partial.bytes)
        output.lines([f"{warning(part)} of the next batch{which}: a consumer drops this part"])
    for txn in fetched.aborted:
        output.lines([f"{warning('aborted')}: producer {txn.producer_id} from offset {txn.first_offset} on"])
