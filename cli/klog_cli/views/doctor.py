"""`klog doctor`: the course of a broker's next start, as text or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.commands.doctor.broker_start import StartRequest, diagnose
from klog.commands.doctor.diagnosis import TXN_INDEX_WRONG, Diagnosis, Fate, KafkaVersion, NextStep, PartitionFate
from klog.commands.doctor.log_dir_format import BrokerConfig, choose_log_dirs, read_config
from klog.commands.doctor.partition_loader import WORTH_MARKING_SECONDS
from klog.formats.java_text import parse_uuid
from klog.partition.start.start_reasons import RETENTION, WATERMARK_NUMBER

from klog_cli import output

_MOST_ROWS = 40
_STATES = {"metadata-log-damaged": "damaged", "metadata-log-behind": "behind the logs"}


class DoctorRequest(NamedTuple):
    """The arguments of the command."""

    log_dirs: Sequence[str]
    version: str
    cluster_id: str | None
    node_id: int | None
    directory_ids: Sequence[str]
    config: str | None
    records: bool


def doctor(asked: DoctorRequest, form: str) -> int:
    """Print the course of a start, and return the exit code.  Raises UsageError, UnreadableError."""
    request = _request(asked)
    with output.Results() as results:
        found = diagnose(request, results)
    if form == "json":
        output.emit_json(_document(found))
    else:
        for line in _lines(found, request.log_dirs):
            output.lines([line])
    return ExitCode.CLEAN if found.is_harmless else ExitCode.PROBLEMS_LEFT


def _request(asked: DoctorRequest) -> StartRequest:
    config = read_config(asked.config) if asked.config is not None else None
    log_dirs = choose_log_dirs(asked.log_dirs, config, asked.config)
    config = config or BrokerConfig()
    for one in asked.directory_ids:
        if parse_uuid(one) is None:
            raise UsageError(f"--directory-id {one}: expected the 22 letters of an id")
    if len(asked.directory_ids) > len(log_dirs):
        raise UsageError(f"{len(asked.directory_ids)} --directory-id for {counted(len(log_dirs), 'log dir')}")
    if None not in (asked.node_id, config.node_id) and asked.node_id != config.node_id:
        raise UsageError(f"{asked.config} has node.id={config.node_id}, and --node-id is {asked.node_id}")
    return StartRequest(
        log_dirs,
        KafkaVersion(asked.version),
        config.node_id if asked.node_id is None else asked.node_id,
        asked.cluster_id,
        asked.directory_ids,
        config.metadata_log_dir,
        config.delete_delay_ms,
        asked.records,
        config.producer_expiration_ms,
        config.properties,
    )


def _document(found: Diagnosis) -> dict[str, object]:
    return {
        "version": found.version.value,
        "starts": found.starts,
        "loses": found.loses,
        "fatal": None if found.failure is None else found.failure._asdict(),
        "notes": [note._asdict() for note in found.notes],
        "retention": [one.json() for one in found.retention],
        "log_dirs": [{**one._asdict(), "fate": one.fate.value} for one in found.log_dirs],
        "steps": [step._asdict() for step in found.steps],
        "partitions": [{**row._asdict(), "fate": row.fate.value} for row in found.partitions],
        "recovery": {**found.recovery._asdict(), "seconds": list(found.recovery.seconds)},
        "next": [_step(step) for step in found.next],
    }


def _step(step: NextStep) -> dict[str, object]:
    what = {"manual": step.manual} if step.command is None else {"command": step.command}
    return {**what, "why": step.why}


# for people


def _lines(found: Diagnosis, log_dirs: Sequence[str]) -> Iterator[str]:
    retention = [note for note in found.notes if note.id == RETENTION]
    for note in found.notes:
        if note not in retention:
            yield f"{note.id}: {note.message}"
    yield _verdict(found)
    for number, step in enumerate(found.steps, start=1):
        fate = "" if step.fate in ("ok", step.step) else f"{step.fate}  "
        yield f" {number} {step.step:<11} {fate}{step.message}"
    told = [row for row in found.partitions if row.reason and row.fate is not Fate.UNREACHED]
    width = min(max((len(row.directory or f"{row.topic}-{row.partition}") for row in told), default=0), 50)
    for row in told[:_MOST_ROWS]:
        yield _row(row, width)
    if len(told) > _MOST_ROWS:
        yield f"   and {len(told) - _MOST_ROWS} more, all of them with --output json"
    reasons = sorted({row.reason for row in told if row.reason} | ({found.failure.id} if found.failure else set()))
    if reasons:
        yield f"      each is explained in docs/doctor.md: {', '.join(reasons)}"
    yield from (f"{note.id}: {note.message}" for note in retention)
    yield from _way_out(found, log_dirs)


def _verdict(found: Diagnosis) -> str:
    dirs = f"{'this log dir' if len(found.log_dirs) == 1 else f'these {len(found.log_dirs)} log dirs'}"
    if found.failure is not None:
        return f"A broker {found.version.value} does not start on {dirs}: {found.failure.message}"
    lost = [row for row in found.partitions if row.lost_records]
    loses = "loses nothing"
    if lost:
        loses = f"loses {counted(found.loses, 'record')} in {counted(len(lost), 'partition')}"
    if wrong := sum(row.reason == TXN_INDEX_WRONG for row in found.partitions):
        loses += f", but read_committed consumers of {counted(wrong, 'partition')} get aborted records or miss others"
    if unled := sum(row.reason == WATERMARK_NUMBER for row in found.partitions):
        loses += f", but serves hardly any of its {counted(unled, 'partition')}"
    if found.unsafe:
        loses = loses if lost or wrong else ""
        state = " and ".join(sorted(_STATES[one] for one in found.unsafe))
        loses = f"{loses}{', and ' if loses else ''}its metadata log is {state}: what is lost later is not known"
    if due := sum(one.records for one in found.retention):
        loses += f"; then retention removes {counted(due, 'record')}"
    work = found.recovery
    recovery = "none"
    if work.segments:
        low, high = work.seconds
        what = f"{counted(work.segments, 'segment')}, {output.human_size(work.bytes)}"
        recovery = f"{what}, {low:g} to {high:g} s"
    return f"A broker {found.version.value} starts on {dirs}, and {loses}.        (recovery: {recovery})"


def _row(row: PartitionFate, width: int) -> str:
    name = row.directory or f"{row.topic}-{row.partition}"
    facts = [f"{counted(row.lost_records, 'record')} lost"] if row.lost_records else []
    facts += [counted(row.records, "record")] if row.records and not row.lost_records else []
    facts += [row.message] if row.message else []
    facts += ["the partition is created again, empty"] if row.becomes == "empty" else []
    return f"   {name:<{width}}  {row.fate.value:<10}  {'; '.join(facts) or row.reason or ''}"


def _way_out(found: Diagnosis, log_dirs: Sequence[str]) -> Iterator[str]:
    head = "next"
    for step in found.next:
        yield f"{head:<4}  {step.command or step.manual}"
        yield f"        ({step.why})"
        head = ""
    if found.next:
        says = "            (says: starts, loses nothing)" if found.is_whole_way else ""
        yield f"then  klog doctor {' '.join(log_dirs)}{says}"
    if found.starts and not found.loses:
        yield "checksums were computed only where the start reads the logs: klog verify reads them all"
    if found.starts and found.recovery.seconds[1] >= WORTH_MARKING_SECONDS:
        yield f"klog recover --mark-clean {' '.join(log_dirs)} recovers in advance, and saves most of that time"
