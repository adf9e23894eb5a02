"""The output of `klog groups`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from klog.base.errors import ExitCode, UsageError, counted, near_misses
from klog.base.unusable import UNUSABLE
from klog.cluster.coordinator.consumer_groups import MemberImage
from klog.commands.groups.group_details import GroupDetail, GroupQuery, PartitionLag, describe_groups, export_rows
from klog.data_dir.disk.refused_outputs import check_output

from klog_cli import output
from klog_cli.style import faint, good, strong, warning
from klog_cli.views.nothing_found import nothing_found, where

_COLUMNS = ("topic", "partition", "offset", "log end", "lag", "owner", "committed at", "metadata")
_CSV = (
    "group",
    "type",
    "state",
    "topic",
    "partition",
    "offset",
    "leader_epoch",
    "metadata",
    "committed_at",
    "log_start",
    "log_end",
    "lag",
    "certain",
    "pending_of_producer",
    "member_id",
    "client_id",
    "host",
)


def groups(paths: Sequence[str], query: GroupQuery, form: str, to: str | None) -> int:
    """Print the groups, or write their offsets, and return the exit code.  Raises UsageError, KlogError."""
    if not paths:
        raise UsageError("no groups: name log dirs or partition directories")
    if to not in (None, "-"):
        check_output(to, paths)
    found = describe_groups(paths, query._replace(names=()), output.error)
    selected = [one for one in found or () if query.selects(one.image)]
    if form == "reset-offsets" and selected:
        return _export(selected, to)
    if form != "reset-offsets":
        _print(selected, form)
    if selected:
        return ExitCode.CLEAN
    if found is None:
        return nothing_found(
            f"{', '.join(paths)}: no __consumer_offsets; groups are on the disks of their coordinators"
        )
    kind = f"{' or '.join(query.types)} " if query.types else ""
    if query.names:
        near = near_misses(query.names[0], {one.image.group for one in found})
        return nothing_found(f"no {kind}group {', '.join(query.names)}{near}")
    chosen = " with offsets of these partitions" if query.topics or query.numbers else ""
    return nothing_found(f"no {kind}group{chosen} {where(paths)}")


def _print(found: Sequence[GroupDetail], form: str) -> None:
    if form == "json":
        output.emit_json({"groups": [group_json(one) for one in found]})
    elif form == "jsonl":
        output.emit_jsonl(map(group_json, found))
    elif form == "csv":
        _csv(found)
    else:
        _text(found)


def _export(found: Sequence[GroupDetail], path: str | None) -> int:
    shared = [one.image.group for one in found if one.image.type == "share"]
    if shared:
        output.note(f"share groups have no committed offsets and are left out: {', '.join(shared)}")
    UNUSABLE.check_read(0, "nothing is written; name the partition directories to take")
    rows = export_rows(found)
    with output.Results(None if path == "-" else path) as results:
        results.write(output.csv_lines(rows))
    return ExitCode.CLEAN


# ---------------------------------------------------------------- json


def group_json(one: GroupDetail) -> dict[str, object]:
    """Return a group as the members of a JSON object."""
    image = one.image
    return {
        "group": image.group,
        "type": image.type,
        "state": image.state,
        "protocol": image.protocol,
        "epoch": image.epoch,
        "coordinator_partition": image.coordinator_partition,
        **({} if image.certain else {"certain": False}),
        "members": [member._asdict() for member in image.members],
        "offsets": [_row_json(row, image.type == "share") for row in one.offsets],
        "pending": [_row_json(row) for row in one.pending],
    }


def _row_json(row: PartitionLag, shared: bool = False) -> dict[str, object]:
    committed = row.committed
    facts: dict[str, object] = {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "leader_epoch": None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "committed_at": None if committed is None else committed.committed_at,
        "log_start": row.log_start,
        "log_end": row.log_end,
        "lag": row.lag,
    }
    if committed is not None and not committed.certain:
        facts["certain"] = False
    if committed is not None and committed.producer_id is not None:
        facts["producer_id"] = committed.producer_id
    if shared:
        facts["in_flight"] = [list(batch) for batch in row.in_flight]
    return facts


# ---------------------------------------------------------------- csv


def _csv(found: Sequence[GroupDetail]) -> None:
    output.write(output.csv_lines([_CSV]))
    for one in found:
        output.write(output.csv_lines([tuple(_csv_cells(one, row)) for row in (*one.offsets, *one.pending)]))


def _csv_cells(one: GroupDetail, row: PartitionLag) -> Iterator[object]:
    facts = _row_json(row)
    yield from (one.image.group, one.image.type, one.image.state)
    yield from (facts[name] for name in _CSV[3:12])
    yield "false" if facts.get("certain") is False else "true"
    yield facts.get("producer_id")
    owner = _owner(one, row)
    yield from (None, None, None) if owner is None else (owner.member_id, owner.client_id, owner.host)


# ---------------------------------------------------------------- text


def _owner(one: GroupDetail, row: PartitionLag) -> MemberImage | None:
    where = row.topic, row.partition
    return next((member for member in one.image.members if where in member.partitions), None)


def _text(found: Sequence[GroupDetail]) -> None:
    for i, one in enumerate(found):
        if i:
            output.text("\n")
        titles = list(_titles(one))
        rows = [tuple(_cells(one, row)) for row in (*one.offsets, *one.pending)]
        if rows:
            output.emit_table(titles, _COLUMNS, rows)
        else:
            output.emit_table(titles, (), ())


_MARKS: Mapping[str, Callable[[str], str]] = {"Stable": good, "Empty": str, "Dead": str}
"""The colours of states; others are on the way to one of these."""


def _titles(one: GroupDetail) -> Iterator[str]:
    image = one.image
    state = image.state or "state unknown"
    facts = [f"{strong(image.group)}: {image.type}", _MARKS.get(state, warning)(state)]
    facts += [] if image.epoch is None else [f"epoch {image.epoch}"]
    facts += [] if image.protocol is None else [image.protocol]
    lags = [row.lag for row in one.offsets if row.lag is not None]
    unknown = len(one.offsets) - len(lags)
    more = f" ({counted(unknown, 'partition')} unknown)" if unknown else ""
    facts += [f"lag {strong(str(sum(lags)))}{more}"] if lags else []
    yield ", ".join(facts)
    if not image.certain:
        yield f"  {warning('compaction has removed the members of that time')}"
    for member in image.members:
        static = f" (instance {member.instance_id})" if member.instance_id is not None else ""
        owned: dict[str, list[int]] = {}
        for topic, number in member.partitions:
            owned.setdefault(topic, []).append(number)
        listed = " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in owned.items())
        where = faint(f"client {member.client_id}, host {member.host}")
        yield f"  member {member.member_id}{static}, {where}: {listed or '-'}"


def _cells(one: GroupDetail, row: PartitionLag) -> Iterator[object]:
    committed = row.committed
    yield row.topic
    yield row.partition
    uncertain = committed is not None and not committed.certain
    yield "?" if uncertain else "-" if row.offset is None else row.offset
    yield "-" if row.log_end is None else row.log_end
    yield "-" if row.lag is None else strong(str(row.lag)) if row.lag else row.lag
    owner = _owner(one, row)
    pending = None if committed is None else committed.producer_id
    yield "" if owner is None else owner.client_id
    at = None if committed is None else committed.committed_at
    yield f"pending, producer {pending}" if pending is not None else "" if at is None else output.time_text(at)
    yield "" if committed is None else committed.metadata
